// Functions that the host's and the GPU's code share.
#pragma once

#ifdef __CUDACC__
#define CP_POOL_DEVICE_CODE __host__ __device__
#else
#define CP_POOL_DEVICE_CODE
#endif
