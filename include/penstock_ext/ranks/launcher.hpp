// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// What started the processes of a world, by the variables that it leaves in their environment.
enum class launcher {
  none,      ///< nothing did: one process
  torchrun,  ///< RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE: torchrun, Ray Train, scripts
  open_mpi,  ///< OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE: Open MPI's mpirun
  pmi,       ///< PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS: MPICH's and Intel's mpiexec
  slurm,     ///< SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, SLURM_NTASKS_PER_NODE: srun
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
