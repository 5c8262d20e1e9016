// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <span>

#include "collective.hpp"

namespace mlp {

/// A collective of any kind, for what is compiled apart from it: nvcc need not see an `mpi.h`.
class host_ranks {
 public:
  host_ranks() = default;
  host_ranks(const host_ranks&) = delete;
  host_ranks& operator=(const host_ranks&) = delete;
  virtual ~host_ranks() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  virtual void all_reduce(std::span<float> values) = 0;
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
  virtual void barrier() = 0;
};

static_assert(collective<host_ranks>);

/// These ranks, which outlive it.
template <collective Ranks>
class host_ranks_of final : public host_ranks {
 public:
  explicit host_ranks_of(Ranks& ranks) : ranks_(ranks) {}
  [[nodiscard]] int rank() const override { return ranks_.rank(); }
  [[nodiscard]] int size() const override { return ranks_.size(); }
  void all_reduce(std::span<float> values) override { ranks_.all_reduce(values); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    ranks_.all_gather(mine, all);
  }
  void barrier() override { ranks_.barrier(); }

 private:
  Ranks& ranks_;
};

}  // namespace mlp
