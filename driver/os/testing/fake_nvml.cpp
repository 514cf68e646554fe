// A stand-in for NVIDIA's management library: four GPUs on two sockets. NVLink joins the first two and the last two.
// The second GPU is known by a name instead of a number.
#include <array>
#include <cstring>

namespace {

constexpr int kInvalidArgument = 2;
constexpr int kUninitialized = 1;
std::array<int, 4> gpus{};
bool ready = false;

long place(const void* device) {
  return static_cast<const int*>(device) - gpus.data();
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): the names are those of the library.
extern "C" {

int nvmlInit_v2() {
  ready = true;
  return 0;
}
int nvmlShutdown() {
  ready = false;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (!ready) return kUninitialized;
  if (index >= gpus.size()) return kInvalidArgument;
  *device = &gpus.at(index);
  return 0;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  if (!ready) return kUninitialized;
  if (std::strcmp(uuid, "GPU-second") != 0) return kInvalidArgument;
  *device = &gpus.at(1);
  return 0;
}
int nvmlDeviceGetP2PStatus(void* one, void* other, int caps, int* status) {
  constexpr int kNvlink = 2;
  *status = caps == kNvlink && place(one) / 2 == place(other) / 2 ? 0 : 1;
  return 0;
}
int nvmlDeviceGetTopologyCommonAncestor(void* /*one*/, void* /*other*/, int* level) {
  constexpr int kSystem = 50;
  *level = kSystem;
  return 0;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
