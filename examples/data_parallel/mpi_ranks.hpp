// SPDX-License-Identifier: BSL-1.0
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <array>
#include <cstddef>
#include <exception>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>

#include "collective.hpp"

namespace mlp {

/// Throws with MPI's own words unless a call has succeeded.
inline void require_mpi(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> words{};
  int length = 0;
  MPI_Error_string(status, words.data(), &length);
  throw std::runtime_error(std::string{call} + ": " +
                           std::string{words.data(), static_cast<std::size_t>(length)});
}

/// MPI from here to the end of the scope, for one thread that calls it. What leaves the scope by an
/// exception must call `abort` first: the others would wait for this rank.
class mpi_session {
 public:
  mpi_session() {
    int provided = 0;
    require_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided),
                "MPI_Init_thread");
    if (provided < MPI_THREAD_FUNNELED) throw std::runtime_error("MPI allows no other threads");
  }
  mpi_session(const mpi_session&) = delete;
  mpi_session& operator=(const mpi_session&) = delete;
  ~mpi_session() { MPI_Finalize(); }

  /// Ends all ranks.
  [[noreturn]] static void abort() {
    MPI_Abort(MPI_COMM_WORLD, 1);
    std::terminate();
  }
};

/// All ranks of an `mpi_session`, which outlives it. Sums and gathers in ordinary memory, that of
/// the CPU device. A rank that dies is the launcher's: mpirun ends all others and names it.
class mpi_collective {
 public:
  mpi_collective() {
    require_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &ranks_), "MPI_Comm_dup");
    require_mpi(MPI_Comm_set_errhandler(ranks_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    require_mpi(MPI_Comm_rank(ranks_, &rank_), "MPI_Comm_rank");
    require_mpi(MPI_Comm_size(ranks_, &size_), "MPI_Comm_size");
  }
  mpi_collective(const mpi_collective&) = delete;
  mpi_collective& operator=(const mpi_collective&) = delete;
  ~mpi_collective() { MPI_Comm_free(&ranks_); }

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }

  void all_reduce(std::span<float> values) {
    require_mpi(MPI_Allreduce(MPI_IN_PLACE, values.data(), count_of(values.size()), MPI_FLOAT,
                              MPI_SUM, ranks_),
                "MPI_Allreduce");
  }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
    if (all.size() != mine.size() * static_cast<std::size_t>(size_)) {
      throw std::logic_error("all_gather: " + std::to_string(all.size()) + " bytes for " +
                             std::to_string(size_) + " ranks with " + std::to_string(mine.size()));
    }
    const int count = count_of(mine.size());
    require_mpi(MPI_Allgather(mine.data(), count, MPI_BYTE, all.data(), count, MPI_BYTE, ranks_),
                "MPI_Allgather");
  }
  void barrier() { require_mpi(MPI_Barrier(ranks_), "MPI_Barrier"); }

 private:
  static int count_of(std::size_t elements) {
    if (elements > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
      throw std::length_error("MPI counts no more than 2^31 - 1 elements in a call");
    }
    return static_cast<int>(elements);
  }

  MPI_Comm ranks_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
};

static_assert(collective<mpi_collective>);

}  // namespace mlp
