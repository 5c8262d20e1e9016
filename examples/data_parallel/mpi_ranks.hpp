// SPDX-License-Identifier: BSL-1.0
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string>

#include <penstock/device/cpu_device.hpp>
#include <penstock_ext/ranks/world.hpp>

namespace data_parallel {

/// All ranks, from MPI_Init to MPI_Finalize. All-reduce and gather use host memory, which is also
/// the memory of the CPU device. Only one thread may use the object. If a rank dies, mpirun ends
/// all others and reports the dead rank. A caller that leaves the scope with an exception must
/// first call `abort`, because the other ranks would otherwise wait for its rank.
class mpi_ranks {
 public:
  /// Initializes MPI. Throws `std::runtime_error` if MPI and the environment disagree about the
  /// number of ranks. If mpirun belongs to another MPI implementation, each process forms its own
  /// world.
  explicit mpi_ranks(const penstock::world& w) {
    int provided = 0;
    require(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
    require(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    require(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
    require(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
    if (w.rank == rank_ && w.size == size_) return;
    throw std::runtime_error("the environment says " + w.str() + ", and MPI rank " +
                             std::to_string(rank_) + " of " + std::to_string(size_) +
                             ": start the program by the mpirun of the MPI that it is linked with");
  }
  mpi_ranks(const mpi_ranks&) = delete;
  mpi_ranks& operator=(const mpi_ranks&) = delete;
  ~mpi_ranks() { MPI_Finalize(); }

  /// Terminates all ranks.
  [[noreturn]] static void abort() {
    MPI_Abort(MPI_COMM_WORLD, 1);
    std::abort();
  }

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }

  /// On all ranks, copies `mine` of each rank i to `all`, starting at index i * mine.size().
  void gather(std::span<const std::byte> mine, std::span<std::byte> all) {
    const auto count = static_cast<int>(mine.size());
    require(
        MPI_Allgather(mine.data(), count, MPI_BYTE, all.data(), count, MPI_BYTE, MPI_COMM_WORLD),
        "MPI_Allgather");
  }
  /// Replaces each value with its sum over all ranks, after the work queued on the stream.
  void sum(std::span<float> values, penstock::cpu_stream_ref) {
    require(MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_FLOAT,
                          MPI_SUM, MPI_COMM_WORLD),
            "MPI_Allreduce");
  }
  /// Orders later work on the stream after all sums. Does nothing, because the sums are already
  /// complete.
  void join(penstock::cpu_stream_ref) {}

 private:
  static void require(int status, const char* call) {
    if (status == MPI_SUCCESS) return;
    std::array<char, MPI_MAX_ERROR_STRING> words{};
    int length = 0;
    MPI_Error_string(status, words.data(), &length);
    throw std::runtime_error(std::string{call} + ": " + words.data());
  }

  int rank_ = 0;
  int size_ = 1;
};

}  // namespace data_parallel
