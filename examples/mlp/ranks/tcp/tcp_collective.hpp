// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <penstock/ranks/world.hpp>

#include "frame.hpp"
#include "meeting_place.hpp"
#include "ranks/collective.hpp"
#include "tcp_socket.hpp"

namespace mlp {

/// Ranks without MPI: each has a connection to rank 0, which gathers, sums and sends back. They
/// find it by a store, that of torchrun's agent or one that rank 0 hosts meanwhile.
///
/// Sums are made in the order of the ranks, in ordinary memory, that of the CPU device. All bytes
/// pass rank 0: it is for a few ranks, and for what many exchange once, such as NCCL's id.
///
/// No call waits longer than `patience`. A rank that has ended is noticed at once, one that does
/// not come when the patience is over; rank 0 then tells the others why, and all have a `tcp_error`
/// that names ranks. After one, no further call is made. For one thread.
class tcp_collective {
 public:
  using duration = tcp_clock::duration;

  /// Every rank at once; returns when all are connected. A world of one needs no place to meet.
  tcp_collective(const penstock::world& w, const meeting_place& where, duration patience);
  /// A world of one, and where there are more, the place that the environment says.
  tcp_collective(const penstock::world& w, duration patience)
      : tcp_collective(w, w.size == 1 ? meeting_place{} : meeting_place::from_environment(),
                       patience) {}

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  /// From here on; a training's calls may need more or less than its start.
  void set_patience(duration patience) { patience_ = patience; }
  void all_reduce(std::span<float> values);
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all);
  void barrier() { all_gather({}, {}); }
  /// Tells the others why this rank ends, as far as that is possible at once.
  void abort(std::string_view why) noexcept;

 private:
  /// What rank 0 has of another rank in a call.
  struct arrival {
    std::array<std::byte, frame::bytes> head{};
    std::size_t got = 0;  // of the head, and of what follows it
    frame said{};
    std::string text;  // why it has failed
  };

  void welcome_all(const meeting_place& where, tcp_clock::time_point end);
  [[nodiscard]] bool greet_one(tcp_socket& socket, std::uint64_t token, tcp_clock::time_point end);
  void join(const meeting_place& where, tcp_clock::time_point end);
  void exchange(frame_kind kind, std::span<const std::byte> mine, std::span<std::byte> result,
                std::span<std::byte> gathered);
  void collect(const frame& call, std::span<std::byte> gathered, tcp_clock::time_point end);
  [[nodiscard]] bool take_part(std::size_t rank, arrival& of, const frame& call,
                               std::span<std::byte> place);
  [[nodiscard]] frame receive_frame(tcp_socket& from, tcp_clock::time_point end,
                                    std::string_view what);
  /// Throws what rank 0 has said before it closed the connection, if it has.
  void rethrow_failure_of(tcp_socket& hub);

  int rank_;
  int size_;
  duration patience_;
  std::vector<tcp_socket> others_;  // rank 0's, by rank, the first is none; or the one to rank 0
  std::vector<bool> is_between_;    // whether a frame may begin there now
  std::vector<float> parts_;        // of a sum, on rank 0
  std::uint64_t calls_ = 0;
};

static_assert(collective<tcp_collective>);

}  // namespace mlp
