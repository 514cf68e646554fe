// Messages between CPU ranks: every pair of ranks connected, tagged sends and receives that can be bounded and aborted.
// gloo_communicator.cpp builds its operations from these. Hides c10d and Gloo, whose headers are slow to compile.
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

  // One message in flight. Holds its tensor's memory. Destroying it unfinished gives the message up.
  class Transfer {
   public:
    Transfer() = default;
    Transfer(const Transfer&) = delete;
    Transfer& operator=(const Transfer&) = delete;
    virtual ~Transfer() = default;
    // Until sent or received, at most until `deadline`. `what` opens the error text, e.g. "exchange, p2p step 2".
    // Throws CommError, and then aborts the mesh: its ranks are no longer at the same place, and the lost connections
    // are what frees the peers.
    virtual void wait(Clock::time_point deadline, const std::string& what) = 0;
  };

  // Collective: returns when all ranks are connected, or throws CommError. Sets SIGPIPE to ignored where it has its
  // default action.
  static std::shared_ptr<GlooMesh> connect(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                           const GlooOptions& options);

  GlooMesh() = default;
  GlooMesh(const GlooMesh&) = delete;
  GlooMesh& operator=(const GlooMesh&) = delete;
  virtual ~GlooMesh() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  // A message goes to the receive with the same peer and tag. tensor: contiguous, on the CPU, any dtype, zero elements
  // allowed. Throw CommError.
  virtual std::unique_ptr<Transfer> send(const at::Tensor& tensor, int peer, int tag, const std::string& what) = 0;
  virtual std::unique_ptr<Transfer> recv(const at::Tensor& tensor, int peer, int tag, const std::string& what) = 0;

  // Ends every wait, in progress or to come, with CommError::Kind::aborted, and closes the connections. From any
  // thread, any number of times; the first reason stays.
  virtual void abort(const std::string& reason) = 0;
};

}  // namespace cp_pool
