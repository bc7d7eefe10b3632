// A plugin's properties and those of its devices, as people read them.
#pragma once

#include <string>

#include "src/backends/pjrt/plugin.h"

namespace weft::pjrt {

// A JSON object: the version of PJRT, then the plugin's attributes (of XLA's: which StableHLO it speaks), then the device's (of a TPU's:
// where its chip is). What it does not tell is not there.
std::string AttributesOf(const Plugin& plugin, api::DeviceDescription* description);

}  // namespace weft::pjrt
