// A module of its own (libcp_core_early.so) that needs only the CUDA runtime and NCCL. It is loaded in a few
// milliseconds, while libcp_core_cuda.so, which brings the CUDA half of LibTorch, takes most of a second. Both use the
// same libnccl.so.2, since a process loads a library of one name only once.
//
// No function throws; each returns whether it worked. If one fails, the CUDA part tries again and reports the error.
#include <cstring>
#include <cuda_runtime_api.h>
#include <nccl.h>

static_assert(sizeof(ncclUniqueId) == 128, "as in early_start.cpp");

#define CP_POOL_EXPORT extern "C" __attribute__((visibility("default")))

// Makes the CUDA runtime load the driver's library, so that later calls load no more libraries.
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

// Returns an ncclComm_t on this thread's device that NCCL is connecting; null if the connection could not be started.
CP_POOL_EXPORT void* cp_pool_early_nccl_connect(const unsigned char* bytes, int rank, int size) {
  ncclUniqueId id{};
  std::memcpy(&id, bytes, sizeof id);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  const ncclResult_t result = ncclCommInitRankConfig(&comm, size, id, rank, &config);
  return result == ncclSuccess || result == ncclInProgress ? comm : nullptr;
}
