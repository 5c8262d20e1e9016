// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <arrow/array/data.h>
#include <arrow/array/util.h>
#include <arrow/buffer.h>
#include <arrow/c/bridge.h>
#include <arrow/io/interfaces.h>
#include <arrow/memory_pool.h>
#include <arrow/record_batch.h>
#include <arrow/result.h>
#include <arrow/status.h>
#include <arrow/table.h>
#include <arrow/type.h>
#include <arrow/type_traits.h>
#include <arrow/util/compression.h>
#include <fcntl.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/column_page.h>
#include <parquet/column_reader.h>
#include <parquet/encoding.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>
#include <parquet/schema.h>
#include <parquet/types.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock_ext/blob/support/blob_file.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/support/foreign_format.hpp>
#include <penstock_ext/files/support/system_file.hpp>
#include <penstock_ext/table/arrow_table.hpp>
#include <penstock_ext/table/detail/columns.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// An Arrow status detail that carries a `file_error` through Arrow functions.
class parquet_failure final : public ::arrow::StatusDetail {
 public:
  /// Stores the current exception.
  parquet_failure() : problem_(std::current_exception()) {}

  /// Returns the name of this type.
  const char* type_id() const override { return name; }
  /// Returns the name of this type.
  std::string ToString() const override { return name; }

  /// Throws the exception in `status`, if any.
  static void rethrow(const ::arrow::Status& status) {
    const auto& detail = status.detail();
    if (detail == nullptr || detail->type_id() != std::string_view{name}) return;
    std::rethrow_exception(static_cast<const parquet_failure&>(*detail).problem_);
  }

 private:
  static constexpr const char* name = "penstock::parquet_failure";

  std::exception_ptr problem_;
};

/// The position of a compressed column chunk of a row group in its file.
struct parquet_chunk {
  std::uint64_t offset;
  std::uint64_t bytes;

  [[nodiscard]] std::uint64_t end() const noexcept { return offset + bytes; }
};

/// Merges `chunks` into read requests. Chunks that are close together share a request.
inline std::vector<parquet_chunk> requests_of(std::vector<parquet_chunk> chunks) {
  // Reading up to this many unneeded bytes costs less than a second request.
  constexpr std::uint64_t max_gap = std::uint64_t{1} << 14U;
  std::sort(chunks.begin(), chunks.end(),
            [](const parquet_chunk& a, const parquet_chunk& b) { return a.offset < b.offset; });
  std::vector<parquet_chunk> requests;
  for (const parquet_chunk& next : chunks) {
    if (requests.empty() || next.offset > requests.back().end() + max_gap) {
      requests.push_back(next);
    } else {
      parquet_chunk& last = requests.back();
      last.bytes = (std::max)(last.end(), next.end()) - last.offset;
    }
  }
  return requests;
}

/// A Parquet file as bytes. Detects changes after it was opened. Reading is thread-safe.
class parquet_bytes {
 public:
  /// Opens the file `path`. If `direct` is true and the file system supports direct I/O, opens the
  /// file a second time for reads that bypass the page cache. Throws `file_unreadable`, and
  /// `file_changed` if the file was replaced in between.
  parquet_bytes(std::string path, bool direct) : file_(std::move(path), advice) {
    if (!direct) return;
    direct_ = open_at(AT_FDCWD, this->path().c_str(), O_DIRECT | O_NONBLOCK | O_NOCTTY);
    if (direct_.get() < 0 && errno == EINVAL) return;
    struct ::stat status {};
    if (direct_.get() < 0 || ::fstat(direct_.get(), &status) != 0) {
      throw file_unreadable(this->path(), 0, "a readable file", system_reason(advice));
    }
    if (file_stamp_of(status) == file_.stamp()) return;
    throw file_changed(this->path(), 0, "the file that was opened earlier",
                       "another file of the same name");
  }

  /// Returns the path passed to the constructor.
  [[nodiscard]] const std::string& path() const noexcept { return file_.path(); }
  /// Returns the size in bytes.
  [[nodiscard]] std::uint64_t size() const noexcept { return file_.size(); }

  /// Fills `out` from byte `offset`. Throws `file_unreadable`, and `file_changed` if the file was
  /// modified or truncated.
  void read(std::uint64_t offset, std::span<std::byte> out) const {
    file_.read_unchanged(offset, out);
  }
  /// Reads like `read`, but bypasses the page cache if `is_direct()` returns true. Direct reads use
  /// the buffer `memory`.
  void read_pages(std::uint64_t offset, std::span<std::byte> out, direct_memory& memory) const {
    constexpr std::size_t alignment = direct_memory::alignment;
    while (is_direct() && !out.empty()) {
      const auto skipped = static_cast<std::size_t>(offset % alignment);
      const std::size_t bytes = (std::min)(max_memory, skipped + out.size() + alignment - 1);
      std::byte* const room = memory.room_for(bytes);
      const ssize_t got = ::pread(direct_.get(), room, bytes / alignment * alignment,
                                  static_cast<off_t>(offset - skipped));
      if (got < 0 && errno == EINTR) continue;
      // Falls through to the page cache, which reports the actual error.
      if (got <= static_cast<ssize_t>(skipped)) break;
      const std::size_t count = (std::min)(static_cast<std::size_t>(got) - skipped, out.size());
      std::memcpy(out.data(), room + skipped, count);
      offset += count;
      out = out.subspan(count);
    }
    read(offset, out);
  }
  /// Returns true if `read_pages` bypasses the page cache.
  [[nodiscard]] bool is_direct() const noexcept { return direct_.get() >= 0; }
  /// Starts a read of these bytes into the page cache, unless reads bypass it.
  void prefetch(const parquet_chunk& request) const noexcept {
    file_.prefetch(request.offset, request.bytes);
  }

 private:
  static constexpr const char* advice = "all Parquet files stay open: raise the limit (ulimit -n)";
  static constexpr std::size_t max_memory = std::size_t{8} << 20;

  shard_file file_;
  descriptor direct_{-1};
};

/// An Arrow input file. Distinguishes files that cannot be read or were modified from files with
/// damaged content. Reads stay within the file, even if its footer is wrong. Not thread-safe, but
/// several inputs can share an open file.
class parquet_input final : public ::arrow::io::RandomAccessFile {
 public:
  /// References the open file `file`.
  explicit parquet_input(std::shared_ptr<const parquet_bytes> file) : file_(std::move(file)) {
    set_mode(::arrow::io::FileMode::READ);
  }

  /// Reads `chunks` in few requests and caches them for `ReadAt`. Replaces the cached chunks.
  /// Throws the same errors as `parquet_bytes::read`.
  ::arrow::Status hold(std::vector<parquet_chunk> chunks) {
    held_.clear();
    for (const parquet_chunk& request : requests_of(std::move(chunks))) {
      auto made = ::arrow::AllocateBuffer(static_cast<std::int64_t>(request.bytes));
      if (!made.ok()) return made.status();
      auto* const out = reinterpret_cast<std::byte*>((*made)->mutable_data());
      file_->read_pages(request.offset, {out, request.bytes}, memory_);
      held_.emplace_back(static_cast<std::int64_t>(request.offset), std::move(*made));
    }
    return ::arrow::Status::OK();
  }
  /// Releases the cached chunks.
  void drop() noexcept { held_.clear(); }
  /// Returns the size of the cached chunks in bytes.
  [[nodiscard]] std::int64_t held_bytes() const noexcept {
    std::int64_t all = 0;
    for (const auto& [begin, held] : held_) all += held->size();
    return all;
  }

  using RandomAccessFile::ReadAt;

  /// Returns the file size at the time of opening.
  ::arrow::Result<std::int64_t> GetSize() override { return size(); }
  /// Fills `out` from byte `position`. Returns fewer bytes only at the end of the file.
  ::arrow::Result<std::int64_t> ReadAt(std::int64_t position, std::int64_t bytes,
                                       void* out) override {
    if (position < 0 || bytes < 0) return ::arrow::Status::Invalid("a negative position");
    const std::int64_t count = room(position, bytes);
    try {
      file_->read(static_cast<std::uint64_t>(position),
                  {static_cast<std::byte*>(out), static_cast<std::size_t>(count)});
      return count;
    } catch (const file_error& problem) {
      return ::arrow::Status::IOError(problem.what())
          .WithDetail(std::make_shared<parquet_failure>());
    }
  }
  /// Returns the bytes at `position`, as a slice of a cached chunk or in a new buffer.
  ::arrow::Result<std::shared_ptr<::arrow::Buffer>> ReadAt(std::int64_t position,
                                                           std::int64_t bytes) override {
    if (position < 0 || bytes < 0) return ::arrow::Status::Invalid("a negative position");
    for (const auto& [begin, held] : held_) {
      if (position < begin || position - begin > held->size()) continue;
      if (bytes <= held->size() - (position - begin)) {
        return ::arrow::SliceBuffer(held, position - begin, bytes);
      }
    }
    auto made = ::arrow::AllocateBuffer(room(position, bytes));
    if (!made.ok()) return made.status();
    std::shared_ptr<::arrow::Buffer> buffer = std::move(*made);
    const auto read = ReadAt(position, buffer->size(), buffer->mutable_data());
    if (!read.ok()) return read.status();
    return buffer;
  }

  /// Reads the next bytes at the current position.
  ::arrow::Result<std::int64_t> Read(std::int64_t bytes, void* out) override {
    const auto read = ReadAt(position_, bytes, out);
    if (read.ok()) position_ += *read;
    return read;
  }
  /// Returns the next `bytes` bytes.
  ::arrow::Result<std::shared_ptr<::arrow::Buffer>> Read(std::int64_t bytes) override {
    auto read = ReadAt(position_, bytes);
    if (read.ok()) position_ += (*read)->size();
    return read;
  }
  /// Sets the current position.
  ::arrow::Status Seek(std::int64_t position) override {
    if (position < 0) return ::arrow::Status::Invalid("a negative position");
    position_ = position;
    return ::arrow::Status::OK();
  }
  /// Returns the current position.
  ::arrow::Result<std::int64_t> Tell() const override { return position_; }
  /// Does nothing, because the destructor closes the file.
  ::arrow::Status Close() override { return ::arrow::Status::OK(); }
  /// Always returns false.
  bool closed() const override { return false; }

 private:
  [[nodiscard]] std::int64_t size() const noexcept {
    return static_cast<std::int64_t>(file_->size());
  }
  // Returns the number of bytes after `position`, limited to `bytes`.
  [[nodiscard]] std::int64_t room(std::int64_t position, std::int64_t bytes) const noexcept {
    return (std::min)(bytes, (std::max)(size() - position, std::int64_t{0}));
  }

  std::shared_ptr<const parquet_bytes> file_;
  direct_memory memory_;
  // Sorted by position.
  std::vector<std::pair<std::int64_t, std::shared_ptr<::arrow::Buffer>>> held_;
  std::int64_t position_ = 0;
};

/// A row group in a list of files.
struct parquet_group {
  std::size_t file;         // file index
  int number;               // row group index in the file
  std::uint64_t rows;       // number of rows, at least 1
  std::uint64_t first_row;  // index of the first row in the file
};

/// Reads the numeric columns of a row group. Rejects columns with nulls.
struct number_reader {
  /// The values of a column.
  struct numbers {
    std::shared_ptr<::arrow::Buffer> values;  // null if a value is null or an error occurred
    bool is_in_file_pages = false;            // true if the values reference memory that was read
                                              // from the file
  };

  parquet::RowGroupReader& group;
  std::int64_t rows;                      // number of rows, at least 1
  std::vector<std::int16_t> levels = {};  // reused between pages

  /// Returns the values of `leaf`, which have `bytes` bytes each. Throws `ParquetException` for
  /// most kinds of damage.
  [[nodiscard]] numbers read(int leaf, int bytes) {
    switch (group.metadata()->schema()->Column(leaf)->physical_type()) {
      case parquet::Type::INT32:
        if (bytes == 1) return narrowed<std::int8_t>(read_as<parquet::Int32Type>(leaf));
        if (bytes == 2) return narrowed<std::int16_t>(read_as<parquet::Int32Type>(leaf));
        return read_as<parquet::Int32Type>(leaf);
      case parquet::Type::INT64:
        return read_as<parquet::Int64Type>(leaf);
      case parquet::Type::FLOAT:
        return read_as<parquet::FloatType>(leaf);
      case parquet::Type::DOUBLE:
        return read_as<parquet::DoubleType>(leaf);
      case parquet::Type::FIXED_LEN_BYTE_ARRAY:
        return read_as<parquet::FLBAType>(leaf);
      default:
        return {};
    }
  }

 private:
  // PLAIN values have the same layout in a page as in memory, so the values of a single page are
  // used in place. The page is either a slice of the bytes read, or in the page reader's
  // decompression buffer. Nothing overwrites that buffer, because the reader stops after one value
  // for each row and decompresses no further page.
  template <class Type>
  [[nodiscard]] numbers read_as(int leaf) {
    const parquet::ColumnDescriptor& column = *group.metadata()->schema()->Column(leaf);
    const auto chunk = group.metadata()->ColumnChunk(leaf);
    if (chunk->num_values() != rows) return {};
    const bool has_levels = column.max_definition_level() != 0;
    const auto pages = group.GetColumnPageReader(leaf);
    std::unique_ptr<parquet::DictDecoder<Type>> dictionary;
    numbers all;
    std::int64_t filled = 0;  // number of rows read
    while (const auto page = pages->NextPage()) {
      if (page->type() == parquet::PageType::DICTIONARY_PAGE) {
        const auto& entries = static_cast<const parquet::DictionaryPage&>(*page);
        const bool is_plain = entries.encoding() == parquet::Encoding::PLAIN ||
                              entries.encoding() == parquet::Encoding::PLAIN_DICTIONARY;
        if (dictionary != nullptr || filled != 0 || !is_plain) return {};
        const auto plain = parquet::MakeTypedDecoder<Type>(parquet::Encoding::PLAIN, &column);
        plain->SetData(entries.num_values(), entries.data(), entries.size());
        dictionary = parquet::MakeDictDecoder<Type>(&column);
        dictionary->SetDict(plain.get());
        continue;
      }
      const bool is_v2 = page->type() == parquet::PageType::DATA_PAGE_V2;
      if (!is_v2 && page->type() != parquet::PageType::DATA_PAGE) return {};
      const auto& data = static_cast<const parquet::DataPage&>(*page);
      const int count = data.num_values();
      if (count <= 0 || count > rows - filled) return {};
      const std::optional<int> begin = levels_of(data, has_levels);
      if (!begin) return {};
      const int bytes = data.size() - *begin;
      const bool is_plain = data.encoding() == parquet::Encoding::PLAIN;
      if (is_plain && bytes != count * width<Type>) return {};
      if (is_plain && count == rows && *begin <= bytes / 4) {
        const bool is_as_read =
            chunk->compression() == parquet::Compression::UNCOMPRESSED ||
            (is_v2 && !static_cast<const parquet::DataPageV2&>(data).is_compressed());
        all = {::arrow::SliceBuffer(data.buffer(), *begin, bytes), is_as_read};
      } else {
        if (filled == 0) all = {memory(width<Type>)};
        if (all.values == nullptr) return {};
        const bool has_numbers = data.encoding() == parquet::Encoding::RLE_DICTIONARY ||
                                 data.encoding() == parquet::Encoding::PLAIN_DICTIONARY;
        if (has_numbers && dictionary == nullptr) return {};
        const auto own =
            has_numbers ? nullptr : parquet::MakeTypedDecoder<Type>(data.encoding(), &column);
        parquet::TypedDecoder<Type>* decoder = own.get();
        if (has_numbers) decoder = dictionary.get();
        decoder->SetData(count, data.data() + *begin, bytes);
        std::uint8_t* const out = all.values->mutable_data() + filled * width<Type>;
        if (!decode(*decoder, count, out)) return {};
      }
      filled += count;
    }
    return filled == rows ? all : numbers{};
  }

  // Value size in bytes. The only fixed-length byte array accepted here is float16 (see
  // `is_number`).
  template <class Type>
  static constexpr std::int64_t width =
      std::same_as<Type, parquet::FLBAType> ? 2 : std::int64_t{sizeof(typename Type::c_type)};

  template <class Type>
  [[nodiscard]] static bool decode(parquet::TypedDecoder<Type>& decoder, int count,
                                   std::uint8_t* out) {
    if constexpr (std::same_as<Type, parquet::FLBAType>) {
      std::vector<parquet::FixedLenByteArray> found(static_cast<std::size_t>(count));
      if (decoder.Decode(found.data(), count) != count) return false;
      for (const auto& one : found) out = std::copy_n(one.ptr, width<Type>, out);
      return true;
    } else {
      return decoder.Decode(reinterpret_cast<typename Type::c_type*>(out), count) == count;
    }
  }

  // Parquet stores short integers in 4 bytes.
  template <class Short>
  [[nodiscard]] numbers narrowed(const numbers& from) const {
    if (from.values == nullptr) return {};
    numbers all{memory(sizeof(Short))};
    if (all.values == nullptr) return {};
    const std::uint8_t* in = from.values->data();  // may be unaligned in a page
    auto* const out = reinterpret_cast<Short*>(all.values->mutable_data());
    for (std::int64_t row = 0; row < rows; ++row, in += sizeof(std::int32_t)) {
      std::int32_t one = 0;
      std::memcpy(&one, in, sizeof one);
      out[row] = static_cast<Short>(one);
    }
    return all;
  }

  // Allocates memory for a column. Returns null if the allocation fails.
  [[nodiscard]] std::shared_ptr<::arrow::Buffer> memory(std::int64_t bytes) const {
    auto made = ::arrow::AllocateBuffer(rows * bytes);
    return made.ok() ? std::shared_ptr<::arrow::Buffer>{std::move(*made)} : nullptr;
  }

  // Returns the size of a page's levels in bytes, or nothing if the levels are invalid or a value
  // is null.
  [[nodiscard]] std::optional<int> levels_of(const parquet::DataPage& page, bool has_levels) {
    const int count = page.num_values();
    parquet::LevelDecoder decoder;
    int bytes = 0;
    if (page.type() == parquet::PageType::DATA_PAGE_V2) {
      const auto& own = static_cast<const parquet::DataPageV2&>(page);
      bytes = own.definition_levels_byte_length();
      if (own.repetition_levels_byte_length() != 0 || bytes < 0 || bytes > page.size()) return {};
      if (has_levels) decoder.SetDataV2(bytes, 1, count, page.data());
    } else if (has_levels) {
      const auto& own = static_cast<const parquet::DataPageV1&>(page);
      bytes = decoder.SetData(own.definition_level_encoding(), 1, count, page.data(), page.size());
      if (bytes < 0 || bytes > page.size()) return {};
    }
    if (!has_levels) return bytes;
    levels.resize(static_cast<std::size_t>(count));
    if (decoder.Decode(count, levels.data()) != count) return {};
    // Levels are 0 or 1. The reduction has no branches, so that it can be vectorized.
    if (std::accumulate(levels.begin(), levels.end(), std::int16_t{1},
                        std::bit_and<std::int16_t>{}) == 0) {
      return {};
    }
    return bytes;
  }
};

/// A Parquet file with its schema and row groups. All members except the constructor are
/// thread-safe. Each decoding uses a separate reader, which shares the descriptor and footer. Idle
/// readers are reused.
class parquet_file {
 public:
  /// Opens the file and reads its footer. If `verify` is true, decoding verifies page checksums.
  /// `direct` has the same meaning as in `parquet_bytes`. Throws `file_unreadable`, `file_changed`,
  /// and `file_format_error` if the file is encrypted or has another known format. Throws
  /// `file_corrupt` for any other file that is not a Parquet file.
  explicit parquet_file(std::string path, bool verify = false, bool direct = false)
      : file_(std::make_shared<const parquet_bytes>(std::move(path), direct)), verify_(verify) {
    require_kind();
    guarded("the footer of a Parquet file", [&] {
      metadata_ = parquet::ReadMetaData(std::make_shared<parquet_input>(file_));
      auto first = make_reader();
      const auto& reader = first.decoder;
      std::shared_ptr<::arrow::Schema> schema;
      require(reader->GetSchema(&schema), "the types of a Parquet file");
      require(::arrow::ExportSchema(*schema, schema_.address()), "types that Arrow can export");
      columns_ = reader->manifest().schema_fields;
      numbers_.resize(static_cast<std::size_t>(metadata_->num_columns()));
      for (const auto& column : columns_) {
        if (!is_number(column)) continue;
        numbers_[static_cast<std::size_t>(column.column_index)] = column.field;
      }
      idle_->readers.push_back(std::move(first));
    });
    std::uint64_t all = 0;
    for (int number = 0; number < groups(); ++number) all += rows(number);
    if (const auto stated = static_cast<std::uint64_t>(metadata_->num_rows()); all != stated) {
      throw file_corrupt(this->path(), 0, std::to_string(stated) + " rows, according to the footer",
                         std::to_string(all) + " in its row groups");
    }
  }

  /// Throws `file_format_error` if the leaves of row group `number` are valid but unsupported,
  /// because they are in another file, are encrypted, or use a codec or encoding that this Arrow
  /// version lacks.
  void require_support(int number, const std::vector<int>& leaves) const {
    const auto reject = [&](int leaf, std::int64_t at, const std::string& found) {
      throw file_format_error(path(), static_cast<std::uint64_t>((std::max)(at, std::int64_t{0})),
                              "column \"" +
                                  metadata_->schema()->Column(leaf)->path()->ToDotString() +
                                  "\" of " + name_of(number),
                              found);
    };
    for (const int leaf : leaves) {
      guarded("the columns of " + name_of(number), [&] {
        const auto group = metadata_->RowGroup(number);
        try {
          const auto chunk = group->ColumnChunk(leaf);
          const auto codec = chunk->compression();
          if (!chunk->file_path().empty()) {
            reject(leaf, 0, "the column in the file " + chunk->file_path() + ": open that file");
          }
          if (!::arrow::util::Codec::IsAvailable(codec)) {
            reject(leaf, begin_of(*chunk),
                   "a codec that this Arrow build does not have (" +
                       ::arrow::util::Codec::GetCodecAsString(codec) +
                       "): write the file with zstd or snappy");
          }
          if (std::ranges::any_of(chunk->encodings(), is_unknown)) {
            reject(leaf, begin_of(*chunk),
                   "an encoding that this Arrow version does not support: write the file with an "
                   "older encoding");
          }
        } catch (const parquet::ParquetException& problem) {
          if (has_words(problem.what(), "decrypt")) reject(leaf, 0, encrypted);
          throw;
        }
      });
    }
  }

  [[nodiscard]] const std::string& path() const noexcept { return file_->path(); }
  /// Returns the schema.
  [[nodiscard]] const ArrowSchema& schema() const noexcept { return *schema_; }
  /// Returns the number of row groups.
  [[nodiscard]] int groups() const { return metadata_->num_row_groups(); }
  /// Returns the number of rows in row group `number`. Throws `file_corrupt` if the number is
  /// negative.
  [[nodiscard]] std::uint64_t rows(int number) const {
    const std::int64_t rows = metadata_->RowGroup(number)->num_rows();
    if (rows < 0) {
      throw file_corrupt(path(), 0, "0 rows or more in " + name_of(number), std::to_string(rows));
    }
    return static_cast<std::uint64_t>(rows);
  }

  /// Returns the leaf columns below the columns at `paths`, as numbered by Parquet. Each leaf
  /// appears once. The leaves of the first path come first.
  [[nodiscard]] std::vector<int> leaves(const std::vector<column_path>& paths) const {
    std::vector<int> all;
    for (const column_path& path : paths) {
      const auto* field = &columns_[path[0].child];
      for (std::size_t i = 1; i < path.size(); ++i) {
        // Arrow reads all leaves of an extension type or none.
        if (field->field->type()->id() == ::arrow::Type::EXTENSION) break;
        field = &field->children[path[i].child];
      }
      add_leaves(*field, all);
    }
    return all;
  }

  /// Returns the uncompressed size in bytes of `leaves` in row group `number`, according to the
  /// footer. The footer counts a dictionary value once. Throws `file_corrupt` if a size is invalid.
  [[nodiscard]] std::uint64_t bytes(int number, const std::vector<int>& leaves) const {
    std::int64_t all = 0;
    guarded("the columns of " + name_of(number), [&] {
      const auto group = metadata_->RowGroup(number);
      for (const int leaf : leaves) {
        const std::int64_t size = group->ColumnChunk(leaf)->total_uncompressed_size();
        if (size >= 0 && !__builtin_add_overflow(all, size, &all)) continue;
        throw file_corrupt(path(), 0, "from 0 to 2^63 - 1 bytes in " + name_of(number),
                           "column " + std::to_string(leaf) + " of " + std::to_string(size));
      }
    });
    return static_cast<std::uint64_t>(all);
  }

  /// Returns the positions of `leaves` in row group `number`. Skips leaves whose position lies
  /// outside the file.
  [[nodiscard]] std::vector<parquet_chunk> chunks(int number,
                                                  const std::vector<int>& leaves) const {
    std::vector<parquet_chunk> all;
    guarded("the columns of " + name_of(number), [&] {
      const auto group = metadata_->RowGroup(number);
      for (const int leaf : leaves) {
        const auto chunk = group->ColumnChunk(leaf);
        const std::int64_t offset = begin_of(*chunk);
        const std::int64_t bytes = chunk->total_compressed_size();
        const auto end = static_cast<std::int64_t>(file_->size());
        if (offset < 0 || bytes <= 0 || offset > end || bytes > end - offset) continue;
        all.push_back({static_cast<std::uint64_t>(offset), static_cast<std::uint64_t>(bytes)});
      }
    });
    return all;
  }
  /// Starts a read of `leaves` in row group `number` into the page cache. Does nothing if page
  /// reads bypass the cache.
  void prefetch(int number, const std::vector<int>& leaves) const {
    if (file_->is_direct()) return;
    for (const parquet_chunk& request : requests_of(chunks(number, leaves))) {
      file_->prefetch(request);
    }
  }

  /// Returns the columns of a row group that contain any of `leaves`. Structs contain only the
  /// members in `leaves`. Throws `file_unreadable`, `file_changed` if the file was modified or
  /// truncated since it was opened, and `file_corrupt` with the column name.
  [[nodiscard]] arrow_table decode(const parquet_group& group,
                                   const std::vector<int>& leaves) const {
    const int number = group.number;
    arrow_schema type;
    std::vector<arrow_array> batches;
    const std::string what = name_of(number);
    guarded(what, [&] {
      if (const auto batch = read_numbers(number, leaves)) {
        require(::arrow::ExportSchema(*batch->schema(), type.address()), what);
        require(::arrow::ExportRecordBatch(*batch, batches.emplace_back().address()), what);
        return;
      }
      const std::shared_ptr<::arrow::Table> table = read_leaves(number, leaves);
      require(::arrow::ExportSchema(*table->schema(), type.address()), what);
      ::arrow::TableBatchReader all{*table};
      while (true) {
        std::shared_ptr<::arrow::RecordBatch> batch;
        require(all.ReadNext(&batch), what);
        if (batch == nullptr) return;
        require(::arrow::ExportRecordBatch(*batch, batches.emplace_back().address()), what);
      }
    });
    arrow_table table{std::move(type), std::move(batches)};
    if (table.size() != group.rows) {  // the footer may contradict the pages
      throw file_corrupt(path(), 0, std::to_string(group.rows) + " rows in " + what,
                         std::to_string(table.size()));
    }
    return table;
  }

 private:
  [[nodiscard]] static std::string name_of(int number) {
    return "row group " + std::to_string(number);
  }

  static constexpr const char* encrypted = "an encrypted footer: write the file without encryption";

  [[nodiscard]] static bool has_words(std::string_view text, std::string_view words) noexcept {
    return text.find(words) != text.npos;
  }
  [[nodiscard]] static bool is_unknown(parquet::Encoding::type encoding) noexcept {
    return encoding < parquet::Encoding::PLAIN || encoding >= parquet::Encoding::UNDEFINED;
  }

  // Throws if the file has another format or an encrypted footer. Arrow would report both as
  // damage.
  void require_kind() const {
    constexpr std::uint64_t mark = 4;
    if (file_->size() < 2 * mark) return;
    std::array<std::byte, mark> end{};
    file_->read(file_->size() - mark, end);
    const std::string_view ends{reinterpret_cast<const char*>(end.data()), end.size()};
    if (ends == "PARE") {
      throw file_format_error(path(), file_->size() - mark, "the footer of a Parquet file",
                              encrypted);
    }
    if (ends == "PAR1") return;
    std::vector<std::byte> start(static_cast<std::size_t>((std::min)(file_->size(), max_start)));
    file_->read(0, start);
    if (foreign_format_of(start).name == parquet_format.name) return;
    throw_foreign_format(start, path(), "a Parquet file", 0, "");
  }
  static constexpr std::uint64_t max_start = 4096;

  void require(const ::arrow::Status& status, const std::string& expected) const {
    parquet_failure::rethrow(status);
    if (status.ok()) return;
    // Some Parquet errors have no status code.
    if (status.IsNotImplemented() || has_words(status.message(), "Not yet implemented")) {
      throw file_format_error(
          path(), 0, expected,
          "a feature that this Arrow version does not support: " + status.message());
    }
    throw file_corrupt(path(), 0, expected, status.message());
  }

  // Parquet functions report errors both as exceptions and as status values.
  template <class Call>
  void guarded(const std::string& expected, const Call& call) const {
    try {
      call();
    } catch (const parquet::ParquetStatusException& problem) {
      require(problem.status(), expected);
      throw;
    } catch (const parquet::ParquetException& problem) {
      require(::arrow::Status::Invalid(problem.what()), expected);
    }
  }

  struct group_reader {
    std::shared_ptr<parquet_input> input;
    std::unique_ptr<parquet::arrow::FileReader> decoder;
  };
  struct idle_readers {
    std::mutex mutex;
    std::vector<group_reader> readers;
  };

  [[nodiscard]] group_reader make_reader() const {
    auto input = std::make_shared<parquet_input>(file_);
    parquet::arrow::FileReaderBuilder builder;
    parquet::ReaderProperties pages = parquet::default_reader_properties();
    pages.set_page_checksum_verification(verify_);
    require(builder.Open(input, pages, metadata_), "a Parquet file");
    parquet::ArrowReaderProperties how;
    how.set_use_threads(false);  // parallelism comes from penstock's worker threads
    how.set_pre_buffer(false);
    std::unique_ptr<parquet::arrow::FileReader> decoder;
    require(builder.properties(how)->Build(&decoder), "a Parquet file");
    return {std::move(input), std::move(decoder)};
  }

  // Returns an idle reader or a new reader. Reading the metadata of all columns again would take
  // longer than decoding a row group.
  [[nodiscard]] group_reader take_reader() const {
    {
      const std::lock_guard lock{idle_->mutex};
      if (!idle_->readers.empty()) {
        group_reader taken = std::move(idle_->readers.back());
        idle_->readers.pop_back();
        return taken;
      }
    }
    return make_reader();
  }

  void release(group_reader reader) const {
    reader.input->drop();
    const std::lock_guard lock{idle_->mutex};
    idle_->readers.push_back(std::move(reader));
  }

  // `ReadRowGroup` returns a result in Arrow 24, and writes to a pointer in earlier versions.
  template <class Reader>
  [[nodiscard]] std::shared_ptr<::arrow::Table> read_group(Reader& reader, int number,
                                                           const std::vector<int>& leaves) const {
    const std::string what = name_of(number);
    if constexpr (
        requires { reader.ReadRowGroup(number, leaves).ok(); } &&
        requires { *reader.ReadRowGroup(number, leaves); }) {
      const auto table = reader.ReadRowGroup(number, leaves);
      require(table.status(), what);
      return *table;
    } else {
      std::shared_ptr<::arrow::Table> table;
      require(reader.ReadRowGroup(number, leaves, &table), what);
      return table;
    }
  }

  [[nodiscard]] static std::int64_t begin_of(const parquet::ColumnChunkMetaData& chunk) {
    const std::int64_t pages = chunk.data_page_offset();
    const bool has_more = chunk.has_dictionary_page() && chunk.dictionary_page_offset() > 0;
    return has_more ? (std::min)(pages, chunk.dictionary_page_offset()) : pages;
  }

  // Returns true if `number_reader` supports the column: one number for each row.
  [[nodiscard]] bool is_number(const parquet::arrow::SchemaField& column) const {
    if (!column.is_leaf()) return false;
    const parquet::ColumnDescriptor& leaf = *metadata_->schema()->Column(column.column_index);
    if (leaf.max_repetition_level() != 0 || leaf.max_definition_level() > 1) return false;
    const ::arrow::Type::type wanted = column.field->type()->id();
    switch (leaf.physical_type()) {
      case parquet::Type::INT32:
        return ::arrow::is_integer(wanted) && column.field->type()->byte_width() <= 4;
      case parquet::Type::INT64:
        return wanted == ::arrow::Type::INT64 || wanted == ::arrow::Type::UINT64;
      case parquet::Type::FLOAT:
        return wanted == ::arrow::Type::FLOAT;
      case parquet::Type::DOUBLE:
        return wanted == ::arrow::Type::DOUBLE;
      case parquet::Type::FIXED_LEN_BYTE_ARRAY:
        return wanted == ::arrow::Type::HALF_FLOAT && leaf.type_length() == 2;
      default:
        return false;
    }
  }

  // Reads numeric columns without nulls in less than half the time of `read_leaves`. Returns null
  // if a column has another type or contains a null. Also returns null after an error, so that
  // `read_leaves` reports the error.
  [[nodiscard]] std::shared_ptr<::arrow::RecordBatch> read_numbers(
      int number, const std::vector<int>& leaves) const {
    ::arrow::FieldVector fields;
    std::int64_t row_bytes = 0;
    for (const int leaf : leaves) {
      fields.push_back(numbers_[static_cast<std::size_t>(leaf)]);
      if (fields.back() == nullptr) return nullptr;
      // Pages store numbers in at least 4 bytes.
      row_bytes += (std::max)(fields.back()->type()->byte_width(), 4);
    }
    const std::int64_t rows = metadata_->RowGroup(number)->num_rows();
    std::int64_t bytes = 0;
    if (rows <= 0 || __builtin_mul_overflow(rows, row_bytes, &bytes)) return nullptr;
    try {
      group_reader own = take_reader();
      require(own.input->hold(chunks(number, leaves)), name_of(number));
      const auto group = own.decoder->parquet_reader()->RowGroup(number);
      number_reader reader{.group = *group, .rows = rows};
      std::vector<number_reader::numbers> columns;
      std::int64_t kept = 0;
      for (std::size_t i = 0; i < fields.size(); ++i) {
        columns.push_back(reader.read(leaves[i], fields[i]->type()->byte_width()));
        if (columns.back().values == nullptr) return nullptr;
        if (columns.back().is_in_file_pages) kept += columns.back().values->size();
      }
      // A single page in use keeps all bytes of its read request in memory. Uses pages in place
      // only if this wastes little memory.
      const bool keeps = own.input->held_bytes() - kept <= kept / 4;
      std::vector<std::shared_ptr<::arrow::Array>> arrays;
      for (std::size_t i = 0; i < fields.size(); ++i) {
        auto& [values, is_in_file_pages] = columns[i];
        if (is_in_file_pages && !keeps) {
          auto copy = values->CopySlice(0, values->size());
          if (!copy.ok()) return nullptr;
          values = std::move(*copy);
        }
        arrays.push_back(::arrow::MakeArray(
            ::arrow::ArrayData::Make(fields[i]->type(), rows, {nullptr, std::move(values)}, 0)));
      }
      release(std::move(own));
      return ::arrow::RecordBatch::Make(::arrow::schema(std::move(fields)), rows,
                                        std::move(arrays));
    } catch (const parquet::ParquetException&) {
      return nullptr;
    }
  }
  // Reads the columns one by one, because Arrow messages do not name the column of a damaged page.
  [[nodiscard]] std::shared_ptr<::arrow::Table> read_leaves(int number,
                                                            const std::vector<int>& leaves) const {
    const auto read = [&](const std::vector<int>& some) {
      std::shared_ptr<::arrow::Table> table;
      guarded(name_of(number), [&] {
        group_reader own = take_reader();
        require(own.input->hold(chunks(number, some)), name_of(number));
        table = read_group(*own.decoder, number, some);
        release(std::move(own));
      });
      return table;
    };
    try {
      return read(leaves);
    } catch (const file_corrupt&) {
      for (const int leaf : leaves) {
        try {
          (void)read({leaf});
        } catch (const file_corrupt& problem) {
          const auto group = metadata_->RowGroup(number);
          throw file_corrupt(path(),
                             static_cast<std::uint64_t>(begin_of(*group->ColumnChunk(leaf))),
                             "complete pages of column \"" +
                                 metadata_->schema()->Column(leaf)->path()->ToDotString() +
                                 "\" in " + name_of(number),
                             problem.found() + ": the file is damaged: copy or write it again");
        }
      }
      throw;
    }
  }

  static void add_leaves(const parquet::arrow::SchemaField& field, std::vector<int>& leaves) {
    const int own = field.column_index;
    const bool is_new = std::find(leaves.begin(), leaves.end(), own) == leaves.end();
    if (field.is_leaf() && is_new) leaves.push_back(own);
    for (const auto& child : field.children) add_leaves(child, leaves);
  }

  std::shared_ptr<const parquet_bytes> file_;
  bool verify_;
  std::shared_ptr<parquet::FileMetaData> metadata_;
  arrow_schema schema_;
  std::vector<parquet::arrow::SchemaField> columns_;
  ::arrow::FieldVector numbers_;  // for each leaf, its column, or null unless `is_number`
  std::unique_ptr<idle_readers> idle_ = std::make_unique<idle_readers>();
};

/// The row groups of several Parquet files, with rows numbered consecutively, and the columns to
/// read. Hints make the system read compressed bytes into the page cache without decoding them. All
/// members except the constructor are thread-safe.
class parquet_groups {
 public:
  /// Opens the files (see `parquet_options`). When all files are open, calls `leaves_of(file)` for
  /// each file, which must return the leaves to read. Throws `file_unreadable`, `file_corrupt`, and
  /// `option_error` if `paths` is empty.
  template <class LeavesOf>
  parquet_groups(const std::vector<std::string>& paths, bool verify, bool direct,
                 const LeavesOf& leaves_of) {
    if (paths.empty()) throw_option_error("paths", {"must not be empty"});
    files_.reserve(paths.size());
    for (const std::string& path : paths) {
      const parquet_file& file = files_.emplace_back(path, verify, direct);
      std::uint64_t first_row = 0;
      for (int number = 0; number < file.groups(); ++number) {
        const std::uint64_t rows = file.rows(number);
        if (rows == 0) continue;
        if (rows > max_rows - size()) {
          throw file_corrupt(path, 0, "less than 2^62 rows, with those of the files before",
                             std::to_string(rows) + " in row group " + std::to_string(number));
        }
        groups_.push_back({files_.size() - 1, number, rows, first_row});
        ends_.push_back(size() + rows);
        block_ = (std::max)(block_, rows);
        first_row += rows;
      }
    }
    for (const parquet_file& file : files_) leaves_.push_back(leaves_of(file));
    for (const parquet_group& one : groups_) {
      std::uint64_t bytes = 0;
      file_of(one).require_support(one.number, leaves_[one.file]);
      // Skips invalid positions. Decoding reports them.
      for (const auto& chunk : file_of(one).chunks(one.number, leaves_[one.file])) {
        bytes += chunk.bytes;
      }
      row_bytes_.push_back(bytes / one.rows + (bytes % one.rows != 0 ? 1 : 0));
    }
    is_requested_ = std::vector<std::atomic<bool>>(groups_.size());
  }

  [[nodiscard]] const std::vector<parquet_file>& files() const noexcept { return files_; }
  [[nodiscard]] const std::vector<parquet_group>& groups() const noexcept { return groups_; }
  /// Returns the file that contains a row group.
  [[nodiscard]] const parquet_file& file_of(const parquet_group& group) const noexcept {
    return files_[group.file];
  }
  /// Returns the number of rows in all row groups.
  [[nodiscard]] std::uint64_t size() const noexcept { return ends_.empty() ? 0 : ends_.back(); }
  /// Returns the number of rows in the largest row group, at least 1.
  [[nodiscard]] std::uint64_t block() const noexcept { return block_; }
  /// Returns the index of the row group that contains row `index`, in O(log groups) time. `index`
  /// must be less than `size()`.
  [[nodiscard]] std::size_t group_of(std::uint64_t index) const noexcept {
    return static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), index) -
                                    ends_.begin());
  }
  /// Returns the index of the first row in group `number`, counted over all files.
  [[nodiscard]] std::uint64_t first_row(std::size_t number) const noexcept {
    return number == 0 ? 0 : ends_[number - 1];
  }

  /// Returns the selected columns of group `number` (see `parquet_file::decode`).
  [[nodiscard]] arrow_table decode(std::size_t number) const {
    const parquet_group& one = groups_[number];
    return file_of(one).decode(one, leaves_[one.file]);
  }
  /// Returns the size in bytes of a group's selected columns (see `parquet_file::bytes`).
  [[nodiscard]] std::uint64_t bytes(const parquet_group& one) const {
    return file_of(one).bytes(one.number, leaves_[one.file]);
  }

  /// Starts reads of the row groups that contain the rows `indices`. Skips groups that were already
  /// requested since their last read, and rows out of range.
  void prefetch_hint(std::span<const std::uint64_t> indices) const noexcept {
    for (const std::uint64_t index : indices) {
      if (index >= size()) continue;
      const std::size_t number = group_of(index);
      // Relaxed ordering suffices, because only hints depend on the flag.
      if (is_requested_[number].exchange(true, std::memory_order_relaxed)) continue;
      try {
        const parquet_group& group = groups_[number];
        file_of(group).prefetch(group.number, leaves_[group.file]);
      } catch (...) {
        // If the hint runs out of memory, the group is read on demand.
      }
    }
  }
  /// Records that row group `number` was read, so that later hints request it again.
  void record_read(std::size_t number) const noexcept {
    if (is_requested_[number].load(std::memory_order_relaxed)) {
      is_requested_[number].store(false, std::memory_order_relaxed);
    }
  }
  /// Returns the compressed size in bytes of the row group that contains row `index`, divided by
  /// its number of rows. Returns 0 if the index is out of range.
  [[nodiscard]] std::uint64_t storage_size(std::uint64_t index) const noexcept {
    return index < size() ? row_bytes_[group_of(index)] : 0;
  }

 private:
  // Prevents overflow of row counts.
  static constexpr std::uint64_t max_rows = (std::uint64_t{1} << 62U) - 1;

  std::vector<parquet_file> files_;
  std::vector<std::vector<int>> leaves_;  // leaves to read, indexed by file
  std::vector<parquet_group> groups_;
  std::vector<std::uint64_t> ends_;  // one past the last row of each group
  // Compressed bytes for each row, indexed by group.
  std::vector<std::uint64_t> row_bytes_;
  // True if the group was requested since its last read.
  mutable std::vector<std::atomic<bool>> is_requested_;
  std::uint64_t block_ = 1;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
