// Runs StableHLO texts on the CPU backend, many in one process, for jax_harness.py. A request on stdin is one line
// "<bytes of text> <inputs>", the text, then for each input a line "<dtype> <dim> <dim> …" and its bytes; stdin's end ends the
// program. The answer on stdout is "ok <results>" and the results in the same way, or "<stage> <bytes>" and a message, where
// the stage that failed is read, run. With an argument: the names of the operations that are read.
#include <iostream>
#include <sstream>

#include "absl/strings/str_join.h"
#include "src/backends/cpu/cpu_backend.h"
#include "src/stablehlo/read.h"
#include "tests/support/cpu_under_test.h"
#include "tests/support/run_on_backend.h"

namespace weft {
namespace {

std::string ReadBytes(size_t count) {
  std::string bytes(count, '\0');
  std::cin.read(bytes.data(), static_cast<std::streamsize>(count));
  return bytes;
}

std::optional<HostTensor> ReadTensor() {
  std::string line, dtype;
  if (!std::getline(std::cin, line)) return {};
  std::istringstream words(line);
  words >> dtype;
  Dims dims;
  for (int64_t dim; words >> dim;) dims.push_back(dim);
  const auto known = ParseDType(dtype);
  if (!known) return {};
  HostTensor tensor(*known, std::move(dims));
  const std::string bytes = ReadBytes(tensor.bytes().size());
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(tensor.mutable_bytes().data()));
  return tensor;
}

void Fail(std::string_view stage, const absl::Status& status) {
  std::cout << stage << " " << status.message().size() << "\n" << status.message() << std::flush;
}

void Answer(Backend& backend, const std::string& text, const std::vector<HostTensor>& inputs) {
  auto module = stablehlo::ReadStableHlo(text);
  if (!module.ok()) return Fail("read", module.status());
  auto results = test::RunOnBackend(backend, *module, inputs);
  if (!results.ok()) return Fail("run", results.status());
  std::cout << "ok " << results->size() << "\n";
  for (const HostTensor& result : *results) {
    std::cout << NameOf(result.dtype()) << " " << absl::StrJoin(result.dims(), " ") << "\n";
    const auto bytes = result.bytes();
    std::cout.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  std::cout << std::flush;
}

int Serve() {
  auto backend = test::NewCpuBackend();
  if (!backend.ok()) {
    std::cerr << backend.status().message() << "\n";
    return 1;
  }
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    size_t bytes = 0, count = 0;
    words >> bytes >> count;
    const std::string text = ReadBytes(bytes);
    std::vector<HostTensor> inputs;
    for (size_t i = 0; i < count; ++i) {
      auto tensor = ReadTensor();
      if (!tensor) return 2;
      inputs.push_back(*std::move(tensor));
    }
    Answer(**backend, text, inputs);
  }
  return 0;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  if (argc == 1) return weft::Serve();
  for (const std::string& name : weft::stablehlo::ReadableOperations()) std::cout << name << "\n";
}
