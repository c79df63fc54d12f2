//! Losses by an independent numpy implementation.

use crate::testing::{at_least, close};
use crate::{
    BandedToeplitz, InverseToeplitz, NormalisedInverseToeplitz, NormalisedToeplitz, Strategy, Tree, TreeFull,
    TreeLayout, Workload,
};

/// MaxLoss and RmsLoss of prefix sums.
fn losses(strategy: &Strategy, n: usize, gap: u64, max_par: u64) -> [f64; 2] {
    let schema = at_least(gap, max_par);
    let certified = strategy.squared_sensitivity(n, &schema).unwrap();
    let errors = strategy.errors(n, &Workload::prefix_sum()).unwrap();
    let losses = errors.losses(certified.squared);
    [losses.max_loss, losses.rms_loss]
}

#[track_caller]
fn check(got: [f64; 2], want: [f64; 2]) {
    for (got, want) in got.into_iter().zip(want) {
        close(got, want, 1e-9);
    }
}

/// The expected losses come from an independent numpy implementation, and from the seed numbers of [BLT] Table 3 for
/// TreeAgg-Full.
#[test]
fn losses_match_an_independent_implementation() {
    let tree = Strategy::Tree(Tree::new());
    let got = losses(&tree, 8, 4, 2);
    check(got, [4.730_851_126_483_730_5, 3.443_420_226_626_842_8]);
    let got = losses(&tree, 2000, 400, 5);
    check(got, [18.659_355_512_898_145, 13.679_640_331_907_48]);
    let got = losses(&tree, 2052, 342, 6);
    check(got, [27.272_077_308_281_3, 19.275_023_272_586_015]);
    let full = |n, layout| Strategy::TreeFull(TreeFull::new(n, layout).unwrap());
    let complete = full(2000, TreeLayout::CompleteNodes);
    let got = losses(&complete, 2000, 400, 5);
    check(got, [14.757_810_223_161_131, 9.794_516_813_521_218]);
    let twelve = full(2052, TreeLayout::Trees { leaves: 2048 });
    let got = losses(&twelve, 2052, 342, 6);
    check(got, [14.980_916_608_766_476, 12.469_428_039_035_385]);
    let complete = full(2052, TreeLayout::CompleteNodes);
    let got = losses(&complete, 2052, 342, 6);
    check(got, [14.980_916_608_766_476, 12.471_496_223_996_748]);
    let fhu = |bands| Strategy::BandedToeplitz(BandedToeplitz::fhu(bands).unwrap());
    let got = losses(&fhu(8), 64, 8, 8);
    check(got, [10.150_747_972_771_454, 7.691_710_255_340_499]);
    let got = losses(&fhu(400), 2000, 300, 5);
    check(got, [10.483_200_434_556_702, 8.664_483_167_976_028]);
    let got = losses(&fhu(1024), 1024, 1024, 1);
    check(got, [3.272_554_150_273_128, 3.109_789_906_940_565]);
    let bisr = |bands| Strategy::InverseToeplitz(InverseToeplitz::square_root(bands).unwrap());
    let got = losses(&bisr(4), 64, 8, 8);
    check(got, [10.653_383_855_032_224, 8.119_199_584_839_503]);
    let got = losses(&bisr(64), 2000, 400, 5);
    check(got, [12.494_982_449_794_14, 9.556_769_836_098_058]);
    let lambda = |lambda| InverseToeplitz::lambda(lambda).unwrap();
    let taken = Strategy::InverseToeplitz(lambda(0.9));
    let got = losses(&taken, 64, 16, 4);
    check(got, [6.685_706_018_079_469, 6.005_046_161_387_425]);
    let normalised = NormalisedInverseToeplitz::new(2000, lambda(0.5)).unwrap();
    let normalised = Strategy::NormalisedInverseToeplitz(normalised);
    let got = losses(&normalised, 2000, 2000, 1);
    check(got, [25.834_013_638_959_35, 18.289_336_202_190_487]);
    let root = |n| Strategy::NormalisedToeplitz(NormalisedToeplitz::square_root(n).unwrap());
    let got = losses(&root(16), 16, 16, 1);
    check(got, [1.783_258_215_801_352, 1.709_087_464_792_346_7]);
    let got = losses(&root(2052), 2052, 2052, 1);
    check(got, [3.299_860_807_424_584_3, 3.209_914_986_263_733_7]);
}
