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

/// All ranks, from MPI_Init to MPI_Finalize, for one thread. Sums and gathers in ordinary memory,
/// that of the CPU device. A rank that dies is the launcher's: mpirun ends all others and names it.
/// What leaves the scope by an exception calls `abort` first: the others would wait for this rank.
class mpi_ranks {
 public:
  /// Throws `std::runtime_error` where MPI and the environment differ: an mpirun of another MPI
  /// starts worlds of one.
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

  /// Ends all ranks.
  [[noreturn]] static void abort() {
    MPI_Abort(MPI_COMM_WORLD, 1);
    std::abort();
  }

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }

  /// `mine` of rank i to all[i * mine.size()], on all ranks.
  void gather(std::span<const std::byte> mine, std::span<std::byte> all) {
    const auto count = static_cast<int>(mine.size());
    require(
        MPI_Allgather(mine.data(), count, MPI_BYTE, all.data(), count, MPI_BYTE, MPI_COMM_WORLD),
        "MPI_Allgather");
  }
  /// The sum over the ranks of each value, in place, after what is on the stream.
  void sum(std::span<float> values, penstock::cpu_stream_ref) {
    require(MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_FLOAT,
                          MPI_SUM, MPI_COMM_WORLD),
            "MPI_Allreduce");
  }
  /// What comes on the stream after this comes after all sums: here they are done.
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
