// A workaround for a race in MKL's vector functions (ATen's exp, log and sqrt of contiguous tensors on x86). They
// choose their kernel by a CPU code that the first call in a process writes in two steps: as detected, then mapped to a
// table index. A second thread that calls any of them in between reads the unmapped code and, on AVX-512 machines, gets
// the AVX2 kernel of low accuracy (relative error 1e-4) for that one call. Seen in libtorch 2.11.0;
// https://github.com/pytorch/pytorch/issues/188792.
#pragma once

namespace cp_pool {

// Makes that first call, once in a process, and returns when it is done. Must be called before several threads,
// LibTorch's intra-op threads included, compute tensors.
void settle_vector_math();

}  // namespace cp_pool
