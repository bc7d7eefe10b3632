// Any bytes as StableHLO text: an error, or a module that verifies and is written so that it is read again. Starts from the forms that the tests read.
#include <cstdlib>
#include <cstring>

#include "src/ir/stablehlo.h"
#include "src/ir/verify.h"
#include "src/stablehlo/read.h"
#include "tests/stablehlo/forms.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto module = weft::stablehlo::ReadStableHlo({reinterpret_cast<const char*>(data), size});
  if (!module.ok()) return 0;
  if (!weft::ir::Verify(*module).ok()) std::abort();
  // What the writer writes of it the reader takes.
  const auto written = weft::ir::ToStableHlo(*module);
  if (written.ok() && !weft::stablehlo::ReadStableHlo(*written).ok()) std::abort();
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  if (size < 64) {
    const std::string text =
        weft::stablehlo::TextOf(weft::stablehlo::kForms[seed % std::size(weft::stablehlo::kForms)]);
    if (text.size() <= max_size) {
      std::memcpy(data, text.data(), text.size());
      return text.size();
    }
  }
  return LLVMFuzzerMutate(data, size, max_size);
}
