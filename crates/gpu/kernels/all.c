/* All kernels, for the compiler of the emulator. */
#include "common.c"
#include "products.c"
#include "recurrent.c"
