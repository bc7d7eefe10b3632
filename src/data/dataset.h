// A source of items: a count, the fields of one item, and a function that fills host memory with some of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/runtime/host_tensor.h"
#include "src/runtime/ref.h"

namespace weft::data {

// One part of every item: an image, its label.
struct Field {
  std::string name;  // may be empty
  DType dtype = DType::kInvalid;
  Dims dims;              // of one item
  int64_t row_bytes = 0;  // that one item takes, dense
};
// With its bytes counted; INVALID_ARGUMENT where they cannot be.
absl::StatusOr<Field> MakeField(std::string name, DType dtype, std::span<const int64_t> dims);

// Thread rule: any thread; Read too, as many at once as `most_at_once` says.
class Dataset : public RefCounted {
 public:
  int64_t count() const { return count_; }
  const std::vector<Field>& fields() const { return fields_; }
  int64_t bytes_of_item() const;
  // Threads that may be in Read at once; 0: any number.
  int64_t most_at_once() const { return most_at_once_; }
  // Dense rows of these items (each below count()) into one block a field, and how many bytes went into each: what is
  // less or more than rows times row_bytes is an error of the data set's author.
  virtual absl::Status Read(std::span<const int64_t> items, std::span<std::byte* const> into,
                            std::span<uint64_t> written) = 0;

 protected:
  Dataset(int64_t count, std::vector<Field> fields, int64_t most_at_once = 0)
      : count_(count), fields_(std::move(fields)), most_at_once_(most_at_once) {}

 private:
  const int64_t count_;
  const std::vector<Field> fields_;
  const int64_t most_at_once_;
};

// Rows of dense host memory, which `keep` keeps.
struct Column {
  Field field;
  std::span<const std::byte> bytes;
};
// INVALID_ARGUMENT where a column has another size than `count` rows take.
absl::StatusOr<Ref<Dataset>> FromMemory(int64_t count, std::vector<Column> columns, std::shared_ptr<void> keep);
// One tensor a field, cut along its first dimension.
struct NamedTensor {
  std::string name;
  HostTensor tensor;
};
absl::StatusOr<Ref<Dataset>> FromTensors(std::vector<NamedTensor> tensors);
// The fields of several data sets with the same count, side by side.
absl::StatusOr<Ref<Dataset>> Zip(std::vector<Ref<Dataset>> datasets);
// The items of several data sets with the same fields, one data set after the other. `names` stand in errors.
absl::StatusOr<Ref<Dataset>> Join(std::vector<Ref<Dataset>> datasets, std::span<const std::string> names);

// "item 7", "items 7, 3, 12, 9 and 60 more", of none "a batch": for errors.
std::string ItemsText(std::span<const int64_t> items);

}  // namespace weft::data
