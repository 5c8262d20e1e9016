// SPDX-License-Identifier: BSL-1.0
#include "tcp_collective.hpp"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <system_error>

#include "rank_words.hpp"

namespace mlp {

namespace {

constexpr std::chrono::seconds most_for_a_farewell{2};

}  // namespace

tcp_collective::tcp_collective(const penstock::world& w, const meeting_place& where,
                               duration patience)
    : rank_(w.rank), size_(w.size), patience_(patience) {
  if (size_ == 1) return;
  others_.resize(rank_ == 0 ? static_cast<std::size_t>(size_) : 1);
  is_between_.resize(others_.size(), false);
  const auto end = tcp_clock::now() + patience_;
  try {
    if (rank_ == 0) {
      welcome_all(where, end);
    } else {
      join(where, end);
    }
  } catch (const std::exception& error) {
    abort(error.what());
    throw;
  }
}

void tcp_collective::all_reduce(std::span<float> values) {
  if (size_ == 1) return;
  if (rank_ == 0) parts_.resize(values.size() * static_cast<std::size_t>(size_));
  std::span<float> parts{parts_};
  exchange(frame_kind::sum, std::as_bytes(values), std::as_writable_bytes(values),
           std::as_writable_bytes(parts));
}

void tcp_collective::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  if (all.size() != mine.size() * static_cast<std::size_t>(size_)) {
    throw std::logic_error("all_gather: " + std::to_string(all.size()) + " bytes for " +
                           std::to_string(size_) + " ranks with " + std::to_string(mine.size()));
  }
  if (size_ == 1) {
    std::ranges::copy(mine, all.begin());
    return;
  }
  exchange(frame_kind::gather, mine, all, all);
}

void tcp_collective::exchange(frame_kind kind, std::span<const std::byte> mine,
                              std::span<std::byte> result, std::span<std::byte> gathered) {
  const frame call{kind, calls_++, mine.size()};
  const frame answer{kind, call.number, result.size()};
  const auto end = tcp_clock::now() + patience_;
  if (rank_ != 0) {
    tcp_socket& hub = others_.front();
    is_between_.front() = false;
    try {
      hub.send(call.raw(), end, "to rank 0, " + call.str());
      hub.send(mine, end, "to rank 0, " + call.str());
    } catch (const tcp_error&) {
      rethrow_failure_of(hub);
      throw;
    }
    is_between_.front() = true;
    const frame found = receive_frame(hub, end, "from rank 0, " + call.str());
    if (found != answer) {
      throw tcp_error(hub.peer() + ": rank 0 is at " + found.str() + ", and rank " +
                      std::to_string(rank_) + " at " + answer.str());
    }
    hub.receive(result, end, "from rank 0, " + call.str());
    return;
  }
  if (!mine.empty() && gathered.data() != mine.data()) std::ranges::copy(mine, gathered.begin());
  collect(call, gathered, end);
  if (kind == frame_kind::sum) {
    const auto floats = result.size() / sizeof(float);
    std::span<float> sums{parts_.data(), floats};
    for (std::size_t rank = 1; rank < others_.size(); ++rank) {
      const float* const part = parts_.data() + rank * floats;
      for (std::size_t i = 0; i < floats; ++i) sums[i] += part[i];
    }
    std::ranges::copy(std::as_bytes(sums), result.begin());
  }
  for (std::size_t rank = 1; rank < others_.size(); ++rank) {
    const std::string what = "to rank " + std::to_string(rank) + ", " + call.str();
    is_between_[rank] = false;
    others_[rank].send(answer.raw(), end, what);
    others_[rank].send(result, end, what);
    is_between_[rank] = true;
  }
}

void tcp_collective::collect(const frame& call, std::span<std::byte> gathered,
                             tcp_clock::time_point end) {
  std::vector<arrival> arrivals(others_.size());
  std::vector<std::size_t> missing;
  for (std::size_t rank = 1; rank < others_.size(); ++rank) missing.push_back(rank);
  std::vector<bool> is_here(others_.size());
  std::vector<pollfd> asked;
  while (!missing.empty()) {
    asked.clear();
    for (const std::size_t rank : missing) asked.push_back({others_[rank].descriptor(), POLLIN, 0});
    const int found = ::poll(asked.data(), asked.size(), milliseconds_until(end));
    if (found < 0 && errno != EINTR) {
      throw tcp_error("poll: " + std::generic_category().message(errno));
    }
    if (found <= 0 && tcp_clock::now() >= end) {
      throw tcp_error(names_of(missing) + " of " + std::to_string(size_) + ": not come to " +
                      call.str() + ", within " + seconds_of(patience_) +
                      ": see which processes have ended or hang");
    }
    if (found <= 0) continue;
    for (std::size_t i = 0; i < asked.size(); ++i) {
      const std::size_t rank = missing[i];
      if (asked[i].revents == 0) continue;
      const auto place = gathered.subspan(rank * call.length, call.length);
      is_here[rank] = take_part(rank, arrivals[rank], call, place);
    }
    std::erase_if(missing, [&](std::size_t rank) { return is_here[rank]; });
  }
}

bool tcp_collective::take_part(std::size_t rank, arrival& of, const frame& call,
                               std::span<std::byte> place) {
  tcp_socket& from = others_[rank];
  const std::string what = "rank " + std::to_string(rank) + ", " + call.str();
  while (of.got < frame::bytes) {
    const std::size_t got = from.receive_some(std::span{of.head}.subspan(of.got), what);
    if (got == 0) return false;
    of.got += got;
    if (of.got != frame::bytes) continue;
    of.said = frame::parse(of.head, from.peer());
    if (of.said.kind == frame_kind::failed) {
      of.text.resize(static_cast<std::size_t>(of.said.length));
    } else if (of.said != call) {
      throw tcp_error(from.peer() + ": rank " + std::to_string(rank) + " is at " + of.said.str() +
                      ", and rank 0 at " + call.str());
    }
  }
  const bool has_failed = of.said.kind == frame_kind::failed;
  if (has_failed) place = std::as_writable_bytes(std::span{of.text});
  while (of.got - frame::bytes < place.size()) {
    const std::size_t got = from.receive_some(place.subspan(of.got - frame::bytes), what);
    if (got == 0) return false;
    of.got += got;
  }
  if (has_failed) throw rank_failure("rank " + std::to_string(rank) + " has ended: " + of.text);
  return true;
}

frame tcp_collective::receive_frame(tcp_socket& from, tcp_clock::time_point end,
                                    std::string_view what) {
  std::array<std::byte, frame::bytes> head{};
  from.receive(head, end, what);
  const frame found = frame::parse(head, from.peer());
  if (found.kind != frame_kind::failed) return found;
  std::string text(static_cast<std::size_t>(found.length), '\0');
  from.receive(std::as_writable_bytes(std::span{text}), end, what);
  throw rank_failure("rank 0 has ended: " + text);
}

void tcp_collective::rethrow_failure_of(tcp_socket& hub) {
  try {
    static_cast<void>(receive_frame(hub, tcp_clock::now(), "why rank 0 has ended"));
  } catch (const rank_failure&) {
    throw;
  } catch (const tcp_error&) {
    // It has not said.
  }
}

void tcp_collective::abort(std::string_view why) noexcept {
  try {
    const auto text = std::as_bytes(std::span{why.substr(0, frame::most_text)});
    const auto end = tcp_clock::now() + most_for_a_farewell;
    for (std::size_t i = 0; i < others_.size(); ++i) {
      if (!others_[i].is_open() || !is_between_[i]) continue;
      try {
        others_[i].send(frame{frame_kind::failed, calls_, text.size()}.raw(), end, "a farewell");
        others_[i].send(text, end, "a farewell");
      } catch (const tcp_error&) {
        // It has ended before, and the next one may still be there.
      }
      others_[i].close();
    }
  } catch (const std::exception&) {
    // The end of the connections says it, too.
  }
}

}  // namespace mlp
