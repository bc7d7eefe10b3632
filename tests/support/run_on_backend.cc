// One compile, one launch.
#include "tests/support/run_on_backend.h"

#include <cstring>

#include "src/passes/pipeline.h"

namespace weft::test {
namespace {

// 64-bit elements take two words, low half first; narrower ones a whole word, zero-extended.
void Pack(const HostTensor& tensor, uint32_t word, std::vector<uint32_t>& words) {
  const size_t width = BytesOf(tensor.dtype());
  for (int64_t i = 0; i < tensor.count(); ++i) {
    std::memcpy(&words[word + i * (width <= 4 ? 1 : width / 4)], tensor.bytes().data() + i * width, width);
  }
}

}  // namespace

absl::StatusOr<std::vector<HostTensor>> RunOnBackend(Backend& backend, const ir::Module& module,
                                                     std::span<const HostTensor> arguments,
                                                     const CompileOptions& options) {
  passes::PipelineOptions pipeline;
  pipeline.verify_between = true;
  pipeline.claims = [&](const ir::Node& node) { return backend.Claims(node); };
  WEFT_ASSIGN_OR_RETURN(const ir::Module lowered, passes::RunPipeline(module, pipeline));
  return RunLowered(backend, lowered, arguments, options);
}

absl::StatusOr<std::vector<HostTensor>> RunLowered(Backend& backend, const ir::Module& module, std::span<const HostTensor> arguments,
                                                   const CompileOptions& options) {
  WEFT_ASSIGN_OR_RETURN(auto executable, backend.Compile(module, options));
  std::vector<Ref<Buffer>> buffers;
  std::vector<uint32_t> words(module.argument_words);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const ir::ParameterInfo& info = module.main().parameter_infos()[i];
    if (info.role == ir::ParameterInfo::Role::kWords) {
      Pack(arguments[i], info.word, words);
      continue;
    }
    WEFT_ASSIGN_OR_RETURN(Ref<Buffer> buffer, backend.ToDevice(backend.devices()[0], arguments[i].dtype(),
                                                               arguments[i].dims(), arguments[i].bytes()));
    buffers.push_back(std::move(buffer));
  }
  const std::vector<uint8_t> donated(buffers.size(), 0);
  const DeviceArguments device{buffers, words, donated};
  WEFT_ASSIGN_OR_RETURN(auto launched, executable->Execute({&device, 1}));
  WEFT_RETURN_IF_ERROR(launched[0].done->Wait());
  std::vector<HostTensor> results;
  for (const Ref<Buffer>& buffer : launched[0].buffers) {
    HostTensor& result = results.emplace_back(buffer->dtype(), buffer->dims());
    WEFT_RETURN_IF_ERROR(backend.FromDevice(*buffer, 0, result.mutable_bytes()));
  }
  return results;
}

}  // namespace weft::test
