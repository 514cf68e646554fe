// MKL's vector functions (ATen's exp, log, sqrt of contiguous tensors on x86) choose their kernel by a CPU code that
// their first call in a process writes in two steps: as detected, then mapped to a table index. A second thread that
// calls any of them in between reads the first and, on AVX-512 machines, is given the AVX2 kernel of low accuracy
// (relative error 1e-4) for that one call. Seen in libtorch 2.11.0; https://github.com/pytorch/pytorch/issues/188792.
#pragma once

namespace cp_pool {

// Makes that first call, once in a process, and returns when it is done. Call it before several threads compute
// tensors; LibTorch's intra-op threads count.
void settle_vector_math();

}  // namespace cp_pool
