// A module of its own (libcp_core_early.so) with nothing but the CUDA runtime and NCCL: it is loaded in a few
// milliseconds, while libcp_core_cuda.so, which brings all of LibTorch's CUDA half, takes most of a second. Both use
// the same libnccl.so.2: a process loads a library of one name once.
//
// No call throws; each returns whether it worked. The CUDA part tries again and reports errors.
#include <cstring>
#include <cuda_runtime_api.h>
#include <nccl.h>

static_assert(sizeof(ncclUniqueId) == 128, "as in early_start.cpp");

#define CP_POOL_EXPORT extern "C" __attribute__((visibility("default")))

// Makes the driver's library known to the runtime: what follows loads nothing more.
CP_POOL_EXPORT bool cp_pool_early_load_driver() {
  int version = 0;
  return cudaDriverGetVersion(&version) == cudaSuccess && version > 0;
}

// Creates the context of a device and makes it this thread's.
CP_POOL_EXPORT bool cp_pool_early_context(int device) {
  const bool good = cudaSetDevice(device) == cudaSuccess && cudaFree(nullptr) == cudaSuccess;
  if (!good) (void)cudaGetLastError();
  return good;
}

CP_POOL_EXPORT bool cp_pool_early_nccl_id(unsigned char* bytes) {
  ncclUniqueId id{};
  if (ncclGetUniqueId(&id) != ncclSuccess) return false;
  std::memcpy(bytes, &id, sizeof id);
  return true;
}

// An ncclComm_t on this thread's device that is being connected; null if that could not begin.
CP_POOL_EXPORT void* cp_pool_early_nccl_connect(const unsigned char* bytes, int rank, int size) {
  ncclUniqueId id{};
  std::memcpy(&id, bytes, sizeof id);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  const ncclResult_t result = ncclCommInitRankConfig(&comm, size, id, rank, &config);
  return result == ncclSuccess || result == ncclInProgress ? comm : nullptr;
}
