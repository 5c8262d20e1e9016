// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <nvimgcodec.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace test {

/// A call that had nvImageCodec's double decode pictures.
struct double_call {
  nvimgcodecBackendKind_t kind;  // the last one that the decoder is held to
  std::size_t pictures;
  int device;
  nvimgcodecImageBufferKind_t memory;
  cudaStream_t stream;
  int regions;
  friend bool operator==(const double_call&, const double_call&) = default;
};

/// What the double of nvImageCodec does and has seen; its decoders have no GPU and write to host
/// memory. A picture is "P6\n", or "II*" and a zero, and a word, of 2 x 2 pixels; each letter of
/// the word is a back end that decodes it, g, h or c, into that letter. All others have the status
/// `undecoded`. A decoder that is given allocators has `working` bytes of each kind for itself, and
/// as many for each call.
struct nvimgcodec_double {
  std::string missing;  // back ends whose decoder can't be made
  nvimgcodecProcessingStatus_t undecoded = NVIMGCODEC_PROCESSING_STATUS_FAIL;
  nvimgcodecStatus_t header = NVIMGCODEC_STATUS_SUCCESS;  // what reading a header gives
  std::uint32_t channels = 3;                             // of each picture
  nvimgcodecSampleDataType_t samples = NVIMGCODEC_SAMPLE_DATA_TYPE_UINT8;
  nvimgcodecStatus_t waiting = NVIMGCODEC_STATUS_SUCCESS;  // what waiting for a batch gives
  nvimgcodecStatus_t loading = NVIMGCODEC_STATUS_SUCCESS;
  std::vector<double_call> calls;
  std::string made;  // a letter for each decoder, in the order of their making
  int alive = 0;     // objects that are not destroyed
  std::size_t working = 10'000;
  std::vector<void*> given;  // what the allocators gave for calls, and the decoders wrote to
};

/// The one that the functions of nvimgcodec.h use, as it was at the start of the program.
nvimgcodec_double& the_double();

}  // namespace test
