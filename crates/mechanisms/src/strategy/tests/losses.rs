//! Losses by an independent numpy implementation.

use crate::testing::at_least;
use crate::{
    BandedToeplitz, InverseToeplitz, NormalisedInverseToeplitz, NormalisedToeplitz, Strategy, Tree, TreeFull,
    TreeLayout, Workload,
};

fn check_losses(strategy: &Strategy, n: usize, gap: u64, max_par: u64, want: [f64; 2]) {
    let schema = at_least(gap, max_par);
    let certified = strategy.squared_sensitivity(n, &schema).unwrap();
    let errors = strategy.errors(n, &Workload::prefix_sum()).unwrap();
    let losses = errors.losses(certified.squared);
    for (got, want) in [losses.max_loss, losses.rms_loss].into_iter().zip(want) {
        assert!(
            (got / want - 1.0).abs() < 1e-9,
            "{} {n}: {got} {want}",
            strategy.name()
        );
    }
}

/// By an independent numpy implementation, and the seed numbers of [BLT] Table 3 for TreeAgg-Full.
#[test]
fn reference_losses() {
    let tree = Strategy::Tree(Tree::new());
    check_losses(&tree, 8, 4, 2, [4.730_851_126_483_730_5, 3.443_420_226_626_842_8]);
    check_losses(
        &tree,
        2000,
        400,
        5,
        [18.659_355_512_898_145, 13.679_640_331_907_48],
    );
    check_losses(
        &tree,
        2052,
        342,
        6,
        [27.272_077_308_281_3, 19.275_023_272_586_015],
    );
    let full = |n, layout| Strategy::TreeFull(TreeFull::new(n, layout).unwrap());
    let complete = full(2000, TreeLayout::CompleteNodes);
    check_losses(
        &complete,
        2000,
        400,
        5,
        [14.757_810_223_161_131, 9.794_516_813_521_218],
    );
    let twelve = full(2052, TreeLayout::Trees { leaves: 2048 });
    check_losses(
        &twelve,
        2052,
        342,
        6,
        [14.980_916_608_766_476, 12.469_428_039_035_385],
    );
    let complete = full(2052, TreeLayout::CompleteNodes);
    check_losses(
        &complete,
        2052,
        342,
        6,
        [14.980_916_608_766_476, 12.471_496_223_996_748],
    );
    let fhu = |bands| Strategy::BandedToeplitz(BandedToeplitz::fhu(bands).unwrap());
    check_losses(&fhu(8), 64, 8, 8, [10.150_747_972_771_454, 7.691_710_255_340_499]);
    check_losses(
        &fhu(400),
        2000,
        300,
        5,
        [10.483_200_434_556_702, 8.664_483_167_976_028],
    );
    check_losses(
        &fhu(1024),
        1024,
        1024,
        1,
        [3.272_554_150_273_128, 3.109_789_906_940_565],
    );
    let bisr = |bands| Strategy::InverseToeplitz(InverseToeplitz::square_root(bands).unwrap());
    check_losses(
        &bisr(4),
        64,
        8,
        8,
        [10.653_383_855_032_224, 8.119_199_584_839_503],
    );
    check_losses(
        &bisr(64),
        2000,
        400,
        5,
        [12.494_982_449_794_14, 9.556_769_836_098_058],
    );
    let lambda = |lambda| InverseToeplitz::lambda(lambda).unwrap();
    let taken = Strategy::InverseToeplitz(lambda(0.9));
    check_losses(&taken, 64, 16, 4, [6.685_706_018_079_469, 6.005_046_161_387_425]);
    let normalised = NormalisedInverseToeplitz::new(2000, lambda(0.5)).unwrap();
    let normalised = Strategy::NormalisedInverseToeplitz(normalised);
    check_losses(
        &normalised,
        2000,
        2000,
        1,
        [25.834_013_638_959_35, 18.289_336_202_190_487],
    );
    let root = |n| Strategy::NormalisedToeplitz(NormalisedToeplitz::square_root(n).unwrap());
    check_losses(
        &root(16),
        16,
        16,
        1,
        [1.783_258_215_801_352, 1.709_087_464_792_346_7],
    );
    check_losses(
        &root(2052),
        2052,
        2052,
        1,
        [3.299_860_807_424_584_3, 3.209_914_986_263_733_7],
    );
}
