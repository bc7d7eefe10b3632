// TFRecord files of tf.train.Example, as tensors.
// Formats: https://www.tensorflow.org/tutorials/load_data/tfrecord and tensorflow/core/example/{example,feature}.proto.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "src/data/dataset.h"

namespace weft::data {

// Tells whether a file that begins so is one: the length of the first record has the checksum that follows it.
bool IsTfRecord(std::string_view first);
inline constexpr size_t kTfRecordStart = 12;  // bytes that IsTfRecord wants

// Each feature is a field, by name: f32 of float_list, i64 of int64_list, u8 of bytes_list, whose texts must be equally long. A list of one
// value is a scalar, a list of n values [n], of n texts [n, length]. Every record must have the same features with equally many values;
// INVALID_ARGUMENT names the record and the feature that differ. DATA_LOSS where a checksum does not match. `path` stands in errors.
absl::StatusOr<std::vector<NamedTensor>> ReadExamples(const std::string& path, std::string_view bytes);

}  // namespace weft::data
