#include "worker/raw_frames.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <elf.h>
#include <execinfo.h>
#include <link.h>
#include <string_view>
#include <unistd.h>

#include "worker/protocol/raw_stack.h"

namespace cp_pool {

namespace {

constexpr std::size_t kMaxFrames = 64;
constexpr std::size_t kMaxModules = 32;
constexpr std::size_t kMaxPath = 4096;
constexpr std::size_t kMaxBuildId = 20;

std::array<char, kMaxPath> program_path;  // the loader gives no name for the program itself

// Builds and writes a line without allocating.
class LineWriter {
 public:
  explicit LineWriter(int fd) : fd_(fd) {}
  LineWriter& text(std::string_view piece) {
    const std::size_t size = std::min(piece.size(), bytes_.size() - size_);
    std::copy_n(piece.data(), size, bytes_.data() + size_);
    size_ += size;
    return *this;
  }
  // Adds a text as one word, because readers split lines into words.
  LineWriter& word(std::string_view piece) {
    const std::size_t begin = size_;
    text(piece);
    std::replace(bytes_.data() + begin, bytes_.data() + size_, ' ', '_');
    return *this;
  }
  LineWriter& number(std::uint64_t value, unsigned base) {
    std::array<char, 20> digits{};
    std::size_t at = digits.size();
    do {
      digits.at(--at) = "0123456789abcdef"[value % base];
      value /= base;
    } while (value != 0);
    return text({digits.data() + at, digits.size() - at});
  }
  LineWriter& byte(std::uint8_t value) { return number(value / 16U, 16).number(value % 16U, 16); }
  void end() {
    text("\n");
    [[maybe_unused]] const ssize_t written = write(fd_, bytes_.data(), size_);
    size_ = 0;
  }

 private:
  int fd_;
  std::size_t size_ = 0;
  std::array<char, kMaxPath + 512> bytes_{};
};

struct Module {
  const char* path = "";
  std::string_view name;
  std::array<std::uint8_t, kMaxBuildId> build_id{};
  std::size_t build_id_size = 0;
};

struct Frame {
  std::uintptr_t address = 0;
  const Module* module = nullptr;
  std::uintptr_t offset = 0;  // offset in the module, as its symbol table counts
};

struct Stack {
  std::array<Frame, kMaxFrames> frames;
  std::size_t depth = 0;
  std::array<Module, kMaxModules> modules;
  std::size_t module_count = 0;
};
Stack stack;  // static, because a signal handler's stack is small

std::size_t align(std::size_t size) {
  return (size + 3) / 4 * 4;
}

void read_build_id(Module& module, const char* notes, std::size_t size) {
  while (size >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) header;
    std::memcpy(&header, notes, sizeof header);
    const std::size_t name_at = sizeof header;
    const std::size_t content_at = name_at + align(header.n_namesz);
    const std::size_t next = content_at + align(header.n_descsz);
    if (next > size) return;
    if (header.n_type == NT_GNU_BUILD_ID &&
        std::string_view(notes + name_at, header.n_namesz) == std::string_view("GNU\0", 4)) {
      module.build_id_size = std::min<std::size_t>(header.n_descsz, kMaxBuildId);
      std::memcpy(module.build_id.data(), notes + content_at, module.build_id_size);
      return;
    }
    notes += next;
    size -= next;
  }
}

std::string_view name_of(const char* path) {
  const std::string_view whole{path};
  const std::string_view name = whole.substr(whole.rfind('/') + 1);
  const bool taken = std::any_of(stack.modules.begin(), stack.modules.begin() + stack.module_count,
                                 [name](const Module& module) { return module.name == name; });
  return taken ? whole : name;
}

bool contains(const dl_phdr_info& info, std::uintptr_t address) {
  return std::any_of(info.dlpi_phdr, info.dlpi_phdr + info.dlpi_phnum, [&](const ElfW(Phdr) & part) {
    const std::uintptr_t begin = info.dlpi_addr + part.p_vaddr;
    return part.p_type == PT_LOAD && address >= begin && address < begin + part.p_memsz;
  });
}

int find_frames_of_module(dl_phdr_info* info, std::size_t /*size*/, void* /*unused*/) {
  const Module* module = nullptr;
  for (std::size_t i = 0; i < stack.depth; ++i) {
    Frame& frame = stack.frames.at(i);
    if (frame.module != nullptr || !contains(*info, frame.address)) continue;
    if (module == nullptr) {
      if (stack.module_count == kMaxModules) return 1;
      Module& added = stack.modules.at(stack.module_count);
      added = {};
      added.path = info->dlpi_name[0] == '\0' ? program_path.data() : info->dlpi_name;
      added.name = name_of(added.path);
      for (int part = 0; part < info->dlpi_phnum; ++part) {
        const ElfW(Phdr)& header = info->dlpi_phdr[part];
        if (header.p_type != PT_NOTE || added.build_id_size > 0) continue;
        // NOLINTNEXTLINE(performance-no-int-to-ptr): the loader gives numbers
        read_build_id(added, reinterpret_cast<const char*>(info->dlpi_addr + header.p_vaddr), header.p_memsz);
      }
      ++stack.module_count;
      module = &added;
    }
    frame.module = module;
    frame.offset = frame.address - info->dlpi_addr;
  }
  return 0;
}

void take_frames(const void* innermost) {
  std::array<void*, kMaxFrames> addresses{};
  const auto found = static_cast<std::size_t>(backtrace(addresses.data(), static_cast<int>(kMaxFrames)));
  void* const* const end = addresses.data() + found;
  void* const* begin = std::find(static_cast<void* const*>(addresses.data()), end, innermost);
  if (begin == end) begin = addresses.data();
  stack.depth = static_cast<std::size_t>(end - begin);
  stack.module_count = 0;
  for (std::size_t i = 0; i < stack.depth; ++i) {
    const auto address = reinterpret_cast<std::uintptr_t>(begin[i]);
    // A return address may already belong to the next line or function; the call is before it.
    const bool is_return = address != 0 && begin[i] != innermost;
    stack.frames.at(i) = Frame{};
    stack.frames.at(i).address = is_return ? address - 1 : address;
  }
}

}  // namespace

void prepare_raw_frames() {
  const ssize_t size = readlink("/proc/self/exe", program_path.data(), program_path.size() - 1);
  if (size > 0) program_path.at(static_cast<std::size_t>(size)) = '\0';
  std::array<void*, 1> warm_up{};  // the first backtrace loads a library, which a signal handler must not do
  backtrace(warm_up.data(), static_cast<int>(warm_up.size()));
}

void write_raw_frames(int fd, const void* innermost) noexcept {
  take_frames(innermost);
  dl_iterate_phdr(find_frames_of_module, nullptr);
  LineWriter line(fd);
  for (std::size_t i = stack.depth; i-- > 0;) {
    const Frame& frame = stack.frames.at(i);
    line.text(protocol::kFramePrefix).number(i, 10).text(" ");
    if (frame.module != nullptr) line.word(frame.module->name).text("+");
    line.text("0x").number(frame.module != nullptr ? frame.offset : frame.address, 16).end();
  }
  for (std::size_t i = 0; i < stack.module_count; ++i) {
    const Module& module = stack.modules.at(i);
    line.text(protocol::kModulePrefix).word(module.name).text(" ");
    for (std::size_t byte = 0; byte < module.build_id_size; ++byte) line.byte(module.build_id.at(byte));
    line.text(module.build_id_size == 0 ? "- " : " ").text(module.path).end();
  }
}

}  // namespace cp_pool
