// Outputs that we rely on when a function of a plugin's answers success. There are plugins that do not write them.
#pragma once

#include <algorithm>
#include <span>

#include "src/backends/pjrt/api.h"

namespace weft::pjrt {

// The name of what the plugin has not written, or null. Every struct of arguments has one of these: Plugin::Call asks it.

template <typename Element>
bool IsList(const Element* elements, size_t count) {
  return count == 0 || elements != nullptr;
}
template <typename Object>
bool IsListOfObjects(Object* const* objects, size_t count) {
  return IsList(objects, count) &&
         std::ranges::none_of(std::span(objects, count), [](Object* one) { return one == nullptr; });
}

// These write nothing that we read.
inline const char* Unwritten(const api::ErrorDestroy&) { return nullptr; }
inline const char* Unwritten(const api::PluginInitialize&) { return nullptr; }
inline const char* Unwritten(const api::OfEvent&) { return nullptr; }
inline const char* Unwritten(const api::EventOnReady&) { return nullptr; }
inline const char* Unwritten(const api::ClientDestroy&) { return nullptr; }
inline const char* Unwritten(const api::OfTopology&) { return nullptr; }
inline const char* Unwritten(const api::OfExecutable&) { return nullptr; }
inline const char* Unwritten(const api::OfLoadedExecutable&) { return nullptr; }
inline const char* Unwritten(const api::OfBuffer&) { return nullptr; }
// These are also right when nothing was written: a code of 0, statistics that are not set, a buffer that is there.
inline const char* Unwritten(const api::ErrorGetCode&) { return nullptr; }
inline const char* Unwritten(const api::DeviceMemoryStats&) { return nullptr; }
inline const char* Unwritten(const api::CompiledMemoryStats&) { return nullptr; }
inline const char* Unwritten(const api::BufferIsDeleted&) { return nullptr; }
// The caller looks at the lists that it has handed in.
inline const char* Unwritten(const api::Execute&) { return nullptr; }

inline const char* Unwritten(const api::ErrorMessage& a) {
  return IsList(a.message, a.message_size) ? nullptr : "message";
}
inline const char* Unwritten(const api::PluginAttributes& a) {
  return IsList(a.attributes, a.num_attributes) ? nullptr : "attributes";
}
inline const char* Unwritten(const api::ClientCreate& a) { return a.client != nullptr ? nullptr : "client"; }
inline const char* Unwritten(const api::ClientText& a) { return a.text != nullptr ? nullptr : "text"; }
inline const char* Unwritten(const api::ClientDevices& a) {
  return IsListOfObjects(a.devices, a.num_devices) ? nullptr : "devices";
}
inline const char* Unwritten(const api::ClientCompile& a) { return a.executable != nullptr ? nullptr : "executable"; }
inline const char* Unwritten(const api::ClientTopology& a) { return a.topology != nullptr ? nullptr : "topology"; }
inline const char* Unwritten(const api::TopologyCreate& a) { return a.topology != nullptr ? nullptr : "topology"; }
inline const char* Unwritten(const api::TopologyText& a) { return a.text != nullptr ? nullptr : "text"; }
inline const char* Unwritten(const api::TopologyDevices& a) {
  return IsListOfObjects(a.descriptions, a.num_descriptions) ? nullptr : "descriptions";
}
inline const char* Unwritten(const api::Compile& a) { return a.executable != nullptr ? nullptr : "executable"; }
inline const char* Unwritten(const api::BufferFromHostBuffer& a) {
  if (a.buffer == nullptr) return "buffer";
  // Bytes that were copied during the call need no event.
  const bool read_later = a.semantics != api::HostBuffer::kImmutableOnlyDuringCall;
  return read_later && a.done_with_host_buffer == nullptr ? "event" : nullptr;
}
inline const char* Unwritten(const api::DeviceGetDescription& a) {
  return a.description != nullptr ? nullptr : "description";
}
inline const char* Unwritten(const api::DescriptionNumber& a) { return a.number >= 0 ? nullptr : "number"; }
inline const char* Unwritten(const api::DescriptionAttributes& a) {
  return IsList(a.attributes, a.num_attributes) ? nullptr : "attributes";
}
inline const char* Unwritten(const api::DescriptionKind& a) { return a.kind != nullptr ? nullptr : "kind"; }
inline const char* Unwritten(const api::ExecutableNumber& a) { return a.number >= 0 ? nullptr : "number"; }
inline const char* Unwritten(const api::LoadedDevices& a) {
  return IsListOfObjects(a.devices, a.num_devices) ? nullptr : "devices";
}
inline const char* Unwritten(const api::CostAnalysis& a) {
  return IsList(a.properties, a.num_properties) ? nullptr : "properties";
}
inline const char* Unwritten(const api::GetExecutable& a) { return a.executable != nullptr ? nullptr : "executable"; }
inline const char* Unwritten(const api::ExecutableSerialize& a) { return a.bytes != nullptr ? nullptr : "bytes"; }
inline const char* Unwritten(const api::DeserializeAndLoad& a) {
  return a.executable != nullptr ? nullptr : "executable";
}
inline const char* Unwritten(const api::CopyToDevice& a) { return a.copy != nullptr ? nullptr : "buffer"; }
inline const char* Unwritten(const api::ToHostBuffer& a) { return a.event != nullptr ? nullptr : "event"; }
inline const char* Unwritten(const api::CopyRawToHost& a) { return a.event != nullptr ? nullptr : "event"; }
inline const char* Unwritten(const api::ReadyEvent& a) { return a.event != nullptr ? nullptr : "event"; }

}  // namespace weft::pjrt
