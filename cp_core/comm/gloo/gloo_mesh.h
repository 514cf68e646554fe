// Messages between CPU ranks. Every pair of ranks is connected; sends and receives have tags, deadlines and can be
// aborted. gloo_communicator.cpp builds its operations from them. This header hides c10d and Gloo, whose headers are
// slow to compile.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

namespace c10d {
class Store;
}

namespace cp_pool {

struct GlooOptions {
  std::string host = "127.0.0.1";                       // the address to listen on, or a name that resolves to it
  std::optional<std::string> interface = std::nullopt;  // the network interface to listen on, whatever the host
  std::chrono::milliseconds connect_timeout{30000};
};

class GlooMesh {
 public:
  using Clock = std::chrono::steady_clock;

  // One message in flight. It holds its tensor's memory. Destroying an unfinished transfer abandons the message.
  class Transfer {
   public:
    Transfer() = default;
    Transfer(const Transfer&) = delete;
    Transfer& operator=(const Transfer&) = delete;
    virtual ~Transfer() = default;
    // Waits until the message is sent or received, at most until `deadline`. The error text begins with `what`, e.g.
    // "exchange, p2p step 2". An error aborts the mesh, since its ranks are no longer at the same place; the closed
    // connections end the waits of the peers. Throws CommError.
    virtual void wait(Clock::time_point deadline, const std::string& what) = 0;
  };

  // Collective: returns when all ranks are connected, or throws CommError. Makes the process ignore SIGPIPE if the
  // signal has its default action.
  static std::shared_ptr<GlooMesh> connect(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                           const GlooOptions& options);

  GlooMesh() = default;
  GlooMesh(const GlooMesh&) = delete;
  GlooMesh& operator=(const GlooMesh&) = delete;
  virtual ~GlooMesh() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  // A message goes to the receive with the same peer and tag. tensor: contiguous, on the CPU, of any dtype; it may have
  // no elements. Both functions throw CommError.
  virtual std::unique_ptr<Transfer> send(const at::Tensor& tensor, int peer, int tag, const std::string& what) = 0;
  virtual std::unique_ptr<Transfer> recv(const at::Tensor& tensor, int peer, int tag, const std::string& what) = 0;

  // Ends every wait, in progress or to come, with CommError::Kind::aborted, and closes the connections. Callable from
  // any thread, any number of times; the first reason is kept.
  virtual void abort(const std::string& reason) = 0;
};

}  // namespace cp_pool
