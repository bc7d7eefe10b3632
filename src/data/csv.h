// Reads tables of numbers as text (RFC 4180), with any separator.
#pragma once

#include <string>
#include <vector>

#include "src/runtime/host_tensor.h"
#include "src/runtime/io.h"

namespace weft::data {

struct CsvOptions {
  char separator = ',';
  DType dtype = DType::kF32;  // f32, f64, i32 or i64
};
struct CsvTable {
  std::vector<std::string> names;  // of the columns; empty: the file has no first line that is no numbers
  HostTensor rows;                 // [rows, columns]
};

// The whole file, inflated if it is gzip. A first line of which no cell is a number has the names. A cell that is no number of the type, an
// empty one and a line with another number of cells are errors with line and column. Numbers are read alike in every
// locale. Thread rule: any thread.
absl::StatusOr<CsvTable> ReadCsv(FileSystem* fs, const std::string& path, const CsvOptions& options);

}  // namespace weft::data
