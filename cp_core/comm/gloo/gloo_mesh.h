// Messages between CPU ranks. Every pair of ranks is connected; sends and receives have tags, deadlines and can be
// aborted. gloo_communicator.cpp builds its operations from them.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

namespace c10d {
class ProcessGroupGloo;
class Store;
class Work;
}  // namespace c10d

namespace cp_pool {

struct GlooOptions {
  std::string host = "127.0.0.1";                       // the address to listen on, or a name that resolves to it
  std::optional<std::string> interface = std::nullopt;  // the network interface to listen on, whatever the host
  std::chrono::milliseconds connect_timeout{30000};
};

class GlooMesh : public std::enable_shared_from_this<GlooMesh> {
 public:
  using Clock = std::chrono::steady_clock;

  // One message in flight. It holds its tensor's memory. Destroying an unfinished transfer abandons the message.
  class Transfer {
   public:
    Transfer(std::shared_ptr<GlooMesh> mesh, std::string step);
    Transfer(const Transfer&) = delete;
    Transfer& operator=(const Transfer&) = delete;
    ~Transfer();
    // Waits until the message is sent or received, at most until `deadline`. An error aborts the mesh, since its ranks
    // are no longer at the same place; the closed connections end the waits of the peers. Throws CommError.
    void wait(Clock::time_point deadline);

   private:
    friend class GlooMesh;
    std::shared_ptr<GlooMesh> mesh_;
    std::string step_;                     // the first words of an error text
    c10::intrusive_ptr<c10d::Work> work_;  // guarded by the mesh's mutex; null once it is complete or abandoned
  };

  // Collective: returns when all ranks are connected, or throws CommError. Makes the process ignore SIGPIPE if the
  // signal has its default action.
  static std::shared_ptr<GlooMesh> connect(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                           const GlooOptions& options);

  GlooMesh(c10::intrusive_ptr<c10d::ProcessGroupGloo> group, int rank, int size);
  GlooMesh(const GlooMesh&) = delete;
  GlooMesh& operator=(const GlooMesh&) = delete;
  ~GlooMesh();

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }

  // A message goes to the receive with the same peer and tag. tensor: contiguous, on the CPU, of any dtype; it may have
  // no elements. what: for error texts, e.g. "exchange, p2p step 2". Both functions throw CommError.
  std::unique_ptr<Transfer> send(const at::Tensor& tensor, int peer, int tag, const std::string& what);
  std::unique_ptr<Transfer> recv(const at::Tensor& tensor, int peer, int tag, const std::string& what);

  // Ends every wait, in progress or to come, with CommError::Kind::aborted, and closes the connections. Callable from
  // any thread, any number of times; the first reason is kept.
  void abort(const std::string& reason);

 private:
  using Start = c10::intrusive_ptr<c10d::Work> (c10d::ProcessGroupGloo::*)(std::vector<at::Tensor>& tensors, int peer,
                                                                           int tag);
  std::unique_ptr<Transfer> start(Start start_work, const at::Tensor& tensor, int peer, int tag, std::string step);
  [[noreturn]] void fail(const std::string& step, bool timed_out, const std::string& detail);
  void throw_if_aborted(const std::string& step);
  c10::intrusive_ptr<c10d::Work> work_of(const Transfer& transfer);
  void forget(Transfer& transfer);

  std::mutex abort_mutex_;  // makes a second abort() return only after the first has closed the connections
  std::mutex mutex_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  bool aborted_ = false;
  std::string abort_reason_;
  std::unordered_set<Transfer*> in_flight_;
  int rank_;
  int size_;
};

// The places where ranks listen, so that the error of a failed connection can name rank and host, and not only an
// address.

// Puts into the store where this rank listens. device: Gloo's description of it, which contains "addr=[10.0.0.2]".
void tell_place(c10d::Store& store, int rank, const std::string& device);

// Returns "host a cannot reach rank 2 on host b (10.0.0.2)" if Gloo's error contains "remote=[10.0.0.2]" and the store
// has a rank that listens there; several ranks at the address are all named. Returns an empty string if the error has
// no address or the store no such rank.
std::string unreached(c10d::Store& store, int size, const std::string& error);

}  // namespace cp_pool
