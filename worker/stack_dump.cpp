#include "worker/stack_dump.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <elf.h>
#include <execinfo.h>
#include <link.h>
#include <string_view>
#include <sys/syscall.h>
#include <system_error>
#include <ucontext.h>
#include <unistd.h>

#include <fmt/format.h>

#include "cases/case_phases.h"
#include "worker/pending_operation.h"
#include "worker/protocol/frame_names.h"

namespace cp_pool {

namespace {

// --- The stack in a form that a signal handler can produce: module and offset of each frame, and the modules' paths
// and build IDs, but no names. The driver resolves the frames into functions and lines (docs/protocol.md, "Stacks").

constexpr std::size_t kMaxFrames = 64;
constexpr std::size_t kMaxModules = 32;
constexpr std::size_t kMaxPath = 4096;
constexpr std::size_t kMaxBuildId = 20;

std::array<char, kMaxPath> program_path;  // the loader gives no name for the program itself

// Builds a line without allocating, and writes it to stderr.
class LineWriter {
 public:
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
  LineWriter& number(std::uint64_t value, int base) {
    std::array<char, 20> digits;
    const char* const end = std::to_chars(digits.data(), digits.data() + digits.size(), value, base).ptr;
    return text({digits.data(), end});
  }
  LineWriter& byte(std::uint8_t value) { return number(value / 16U, 16).number(value % 16U, 16); }
  [[nodiscard]] std::string_view get() const { return {bytes_.data(), size_}; }
  void end() {
    text("\n");
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, bytes_.data(), size_);
    size_ = 0;
  }

 private:
  std::size_t size_ = 0;
  std::array<char, kMaxPath + 512> bytes_;
};

// Static, as what follows, because a signal handler's stack is small: Python's has a few kilobytes.
LineWriter line;
LineWriter cause;  // what ends the rank

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
Stack stack;

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

// Called once before write_raw_frames, outside of a signal handler.
void prepare_raw_frames() {
  const ssize_t size = readlink("/proc/self/exe", program_path.data(), program_path.size() - 1);
  if (size > 0) program_path.at(static_cast<std::size_t>(size)) = '\0';
  std::array<void*, 1> warm_up{};  // the first backtrace loads a library, which a signal handler must not do
  backtrace(warm_up.data(), static_cast<int>(warm_up.size()));
}

// Writes the frames, the outermost first. Async-signal-safe as far as backtrace() and dl_iterate_phdr() are, which
// neither allocate nor wait for a thread that does. Only one thread may call it at a time. innermost: the address that
// a signal interrupted, so that the frames of its handler are left out; nullptr for every frame.
void write_raw_frames(const void* innermost) noexcept {
  take_frames(innermost);
  dl_iterate_phdr(find_frames_of_module, nullptr);
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

// --- The handlers ---
constexpr std::size_t kHandlerStack = std::size_t{128} << 10U;

std::atomic<unsigned> rank_of_process{0};
std::atomic<pid_t> shown_thread{0};
std::atomic<int> signal_before{0};  // set by show_also; 0: none
std::atomic_flag writing = ATOMIC_FLAG_INIT;
alignas(16) std::array<char, kHandlerStack> handler_stack;

pid_t this_thread() {
  return static_cast<pid_t>(syscall(SYS_gettid));
}

// Returns the instruction at which the signal interrupted the thread.
const void* program_counter(const void* context) {
  const mcontext_t& registers = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return reinterpret_cast<const void*>(registers.gregs[REG_RIP]);  // NOLINT(performance-no-int-to-ptr): a register
#elif defined(__aarch64__)
  return reinterpret_cast<const void*>(registers.pc);
#else
  return nullptr;
#endif
}

// Writes the stack, and then the phase and the communication, because the driver keeps the end of a rank's stderr.
void show_stack(const void* context) {
  line.end();
  if (const int before = signal_before.load(); before != 0) syscall(SYS_tgkill, getpid(), this_thread(), before);
  write_raw_frames(program_counter(context));
  const std::string_view pending = pending_operation();
  line.text("cp-pool-worker: rank ").number(rank_of_process, 10).text(": ").text(cause.get()).text("in ");
  line.text(pending.empty() ? "no communication" : pending).text(", phase ").text(current_phase());
  line.text("; above is the stack of ");
  line.text(this_thread() == shown_thread ? "the computing thread" : "a thread other than the computing thread");
  line.text(", innermost call last").end();
}

// The signal may reach any thread of the process, so the handler forwards it to the thread to show.
void on_request(int signal, siginfo_t* /*info*/, void* context) {
  const int saved_errno = errno;
  const pid_t thread = shown_thread.load();
  if (this_thread() != thread) {
    syscall(SYS_tgkill, getpid(), thread, signal);
  } else if (!writing.test_and_set()) {
    show_stack(context);
    writing.clear();
  }
  errno = saved_errno;
}

void put_cause(int signal, const siginfo_t& info) {
  cause.text("SIG").text(sigabbrev_np(signal));
  // The code of a signal that a process has sent is not positive.
  const bool has_address = info.si_code > 0 && signal != SIGABRT;
  if (has_address) cause.text(" at address 0x").number(reinterpret_cast<std::uintptr_t>(info.si_addr), 16);
  cause.text(" ");
}

// When the handler returns, the default action follows at once, with this thread's own frames in a core dump.
void on_fatal(int signal, siginfo_t* info, void* context) {
  if (writing.test_and_set()) {  // another thread is dying and has to finish writing
    constexpr timespec kLongEnough{1, 0};
    nanosleep(&kLongEnough, nullptr);
  } else {
    put_cause(signal, *info);
    show_stack(context);
  }
  std::signal(signal, SIG_DFL);
  syscall(SYS_tgkill, getpid(), this_thread(), signal);
}

void handle(int signal, void (*handler)(int, siginfo_t*, void*), int flags) {
  struct sigaction action{};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | flags;
  if (sigaction(signal, &action, nullptr) != 0) {
    throw std::system_error(errno, std::generic_category(), fmt::format("sigaction({})", signal));
  }
}

void use_handler_stack() {
  stack_t now{};
  if (sigaltstack(nullptr, &now) != 0 || (now.ss_flags & SS_DISABLE) == 0) return;  // a sanitizer's stack is kept
  stack_t ours{};
  ours.ss_sp = handler_stack.data();
  ours.ss_size = handler_stack.size();
  sigaltstack(&ours, nullptr);
}

}  // namespace

void show_also(int signal) {
  signal_before = signal;
}

void install_stack_dump(int rank) {
  rank_of_process = static_cast<unsigned>(rank);
  shown_thread = this_thread();
  set_current_phase(case_phase::kStart);
  prepare_raw_frames();
  use_handler_stack();
  handle(SIGUSR2, on_request, SA_RESTART);
  for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL}) {
    struct sigaction now{};
    if (sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) handle(signal, on_fatal, 0);
  }
}

}  // namespace cp_pool
