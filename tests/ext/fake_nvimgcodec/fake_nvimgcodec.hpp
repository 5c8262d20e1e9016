// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <nvimgcodec.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace test {

/// A call in which the fake nvImageCodec decoded images.
struct fake_call {
  nvimgcodecBackendKind_t kind;  // the last back end in the decoder's list
  std::size_t images;
  int device;
  nvimgcodecImageBufferKind_t memory;
  cudaStream_t stream;
  int regions;
  friend bool operator==(const fake_call&, const fake_call&) = default;
};

/// The settings and the observations of the fake nvImageCodec. The decoders need no GPU and write
/// to host memory. An image has 2 x 2 pixels. The bytes of an image are "P6\n", or "II*" and a
/// zero, followed by a word. Each letter of the word (g, h or c) selects a back end that can decode
/// the image and then writes this letter. All other back ends return the status `undecoded`. A
/// decoder with allocators allocates `working` bytes of each kind for itself, and again for each
/// call.
struct fake_nvimgcodec {
  std::string missing;  // back ends for which no decoder can be created
  nvimgcodecProcessingStatus_t undecoded = NVIMGCODEC_PROCESSING_STATUS_FAIL;
  nvimgcodecStatus_t header = NVIMGCODEC_STATUS_SUCCESS;  // status of parsing a header
  std::uint32_t channels = 3;                             // number of channels per image
  nvimgcodecSampleDataType_t samples = NVIMGCODEC_SAMPLE_DATA_TYPE_UINT8;
  nvimgcodecStatus_t waiting = NVIMGCODEC_STATUS_SUCCESS;  // status of waiting for a batch
  nvimgcodecStatus_t loading = NVIMGCODEC_STATUS_SUCCESS;
  std::vector<fake_call> calls;
  std::string made;  // one letter per decoder, in order of creation
  int alive = 0;     // number of objects that exist
  std::size_t working = 10'000;
  std::vector<void*> given;  // memory from the allocators that the decoders have written to
};

/// Returns the state of the fake nvImageCodec. The program starts with the initial state.
fake_nvimgcodec& the_fake();

}  // namespace test
