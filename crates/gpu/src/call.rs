//! The arguments of the kernels, as `kernels/common.c` reads them.

/// An array in the memory of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub(crate) struct Array {
    pub(crate) at: u64,
    pub(crate) row: u32,
    pub(crate) col: u32,
    pub(crate) place: u32,
    pub(crate) shift: u32,
}

/// The arguments of a kernel. Only this crate makes them, so a machine may rely on their arrays.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[repr(C)]
pub struct Call {
    pub(crate) slot_parameters: u64,
    pub(crate) slot_room: u64,
    pub(crate) shared: u64,
    pub(crate) step: u32,
    pub(crate) sequences: u32,
    pub(crate) rows: u32,
    pub(crate) cols: u32,
    pub(crate) depth: u32,
    pub(crate) mode: u32,
    pub(crate) factor: f32,
    pub(crate) a: Array,
    pub(crate) b: Array,
    pub(crate) c: Array,
    pub(crate) d: Array,
}

impl Call {
    /// The rows, columns and terms of the kernel's result, for measurements. Rows and terms may be kinds of the batch, which are the
    /// largest numbers of `u32`.
    #[must_use]
    pub fn extent(&self) -> [u32; 3] {
        [self.rows, self.cols, self.depth]
    }
}

/// The memory that an array lies in.
pub(crate) mod place {
    /// The parameters of the slot.
    pub(crate) const PARAMETERS: u32 = 0;
    /// The workspace of the slot.
    pub(crate) const ROOM: u32 = 1;
    /// The memory behind the workspaces of all slots.
    pub(crate) const SHARED: u32 = 2;
}

/// The rows that an array skips.
pub(crate) mod shift {
    /// The first row of the time step.
    pub(crate) const STEP: u32 = 1;
    /// The first row of the time step before.
    pub(crate) const EARLIER: u32 = 2;
    /// The first state before the time step, where first states stand in front.
    pub(crate) const BEFORE: u32 = 3;
}

/// Kinds of a number of rows.
pub(crate) mod count {
    /// The rows of the batch.
    pub(crate) const ALL_ROWS: u32 = u32::MAX;
    /// The rows of the time step.
    pub(crate) const ROWS_OF_STEP: u32 = u32::MAX - 1;
    /// The sequences of the batch.
    pub(crate) const SEQUENCES: u32 = u32::MAX - 2;
}

/// The uses of a product.
pub(crate) mod product {
    /// The product is the result.
    pub(crate) const SET: u32 = 0;
    /// The product is added to what is there.
    pub(crate) const ADD: u32 = 1;
    /// The row `d` is added to each row of the product.
    pub(crate) const SET_AND_ADD_ROW: u32 = 2;
    /// Each column of the product is multiplied by its value in `d`.
    pub(crate) const SET_AND_SCALE_COLUMNS: u32 = 3;
    /// The product is multiplied by the factor and added to what is there.
    pub(crate) const ADD_SCALED: u32 = 4;
}

/// The words of a slot's header in a table.
pub(crate) mod header {
    pub(crate) const WORDS: usize = 12;
    pub(crate) const ROWS: usize = 0;
    pub(crate) const SEQUENCES: usize = 1;
    pub(crate) const STEPS: usize = 2;
    pub(crate) const TARGETS: usize = 3;
    pub(crate) const CARRY: usize = 4;
    pub(crate) const INPUT_IDS: usize = 5;
    pub(crate) const TARGET_IDS: usize = 6;
    pub(crate) const PREVIOUS: usize = 7;
    pub(crate) const CHAINS: usize = 8;
    pub(crate) const STARTS: usize = 9;
    pub(crate) const LASTS: usize = 10;
    pub(crate) const DISCARD: usize = 11;
}

/// Partial results per row of a softmax, and per block of a distance.
pub(crate) const PARTS: usize = 64;

/// Threads of a block.
pub(crate) const THREADS: u64 = 128;

/// Threads that add up one row together.
pub(crate) const LANES: u64 = 32;

/// Rows and columns of a tile, which one block of a product computes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tile {
    pub(crate) rows: u64,
    pub(crate) cols: u64,
}

impl Tile {
    /// The number of tiles of a product.
    pub(crate) fn count(self, rows: u64, cols: u64) -> u64 {
        rows.div_ceil(self.rows) * cols.div_ceil(self.cols)
    }
}

/// The kernels of products, with their tiles.
pub(crate) const PRODUCT: (Kernel, Tile) = (Kernel::Product, Tile { rows: 64, cols: 128 });
/// Tiles for products of few columns, and of few rows.
pub(crate) const OTHER_PRODUCTS: [(Kernel, Tile); 2] = [
    (Kernel::ProductNarrow, Tile { rows: 64, cols: 96 }),
    (Kernel::ProductLow, Tile { rows: 48, cols: 128 }),
];
/// Tiles for products of the rows of a time step.
pub(crate) const PRODUCT_OF_FEW: (Kernel, Tile) = (Kernel::ProductOfFew, Tile { rows: 16, cols: 32 });

/// The kernel and the number of tiles for a product of at most so many rows. Every kernel gives the same bits.
pub(crate) fn product_kernel(rows: u64, cols: u64) -> (Kernel, u64) {
    let (kernel, tile) = if rows <= PRODUCT.1.rows / 2 {
        PRODUCT_OF_FEW
    } else {
        let area = |(_, tile): &(Kernel, Tile)| tile.count(rows, cols) * tile.rows * tile.cols;
        let [narrow, low] = OTHER_PRODUCTS;
        let other = if area(&narrow) <= area(&low) { narrow } else { low };
        // A larger tile reads less per result, so a smaller one has to save more than a tenth.
        if 10 * area(&other) < 9 * area(&PRODUCT) {
            other
        } else {
            PRODUCT
        }
    };
    (kernel, tile.count(rows, cols))
}

macro_rules! kernels {
    ($($variant:ident $name:literal $function:ident)*) => {
        /// A kernel of the folder `kernels`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Kernel {
            $(
                #[doc = concat!("The kernel `", $name, "`.")]
                $variant,
            )*
        }

        impl Kernel {
            /// All kernels.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The name of the kernel in its source.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }

        /// The kernels as functions of the emulator.
        pub(crate) mod emulated {
            use super::{Call, Kernel};

            /// One thread of an emulated grid.
            #[repr(C)]
            pub(crate) struct Place {
                pub(crate) first: u64,
                pub(crate) stride: u64,
                pub(crate) slot: u32,
                pub(crate) backwards: u32,
            }

            pub(crate) type Function =
                unsafe extern "C" fn(*const Place, *mut f32, *mut f32, *const u32, Call);

            unsafe extern "C" {
                $(fn $function(
                    place: *const Place,
                    parameters: *mut f32,
                    room: *mut f32,
                    table: *const u32,
                    call: Call,
                );)*
            }

            pub(crate) fn function(kernel: Kernel) -> Function {
                match kernel {
                    $(Kernel::$variant => $function,)*
                }
            }
        }
    };
}

kernels! {
    Begin "begin" undertone_train_begin
    Finish "finish" undertone_train_finish
    Gather "gather" undertone_train_gather
    FirstStates "first_states" undertone_train_first_states
    InverseNorms "inverse_norms" undertone_train_inverse_norms
    Product "product" undertone_train_product
    ProductNarrow "product_narrow" undertone_train_product_narrow
    ProductLow "product_low" undertone_train_product_low
    ProductOfFew "product_of_few" undertone_train_product_of_few
    AddColumnSums "add_column_sums" undertone_train_add_column_sums
    CellsForward "cells_forward" undertone_train_cells_forward
    CellsBackward "cells_backward" undertone_train_cells_backward
    SoftmaxParts "softmax_parts" undertone_train_softmax_parts
    SoftmaxRows "softmax_rows" undertone_train_softmax_rows
    SoftmaxGradients "softmax_gradients" undertone_train_softmax_gradients
    Scatter "scatter" undertone_train_scatter
    StepWords "step_words" undertone_train_step_words
    Distances "distances" undertone_train_distances
    Project "project" undertone_train_project
}
