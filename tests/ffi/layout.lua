-- Says size, offset or value of what standard input names, a line each, as the declarations for LuaJIT have it.
-- usage: luajit layout.lua DECLARATIONS LIBRARY
package.path = arg[1] .. "/?.lua;" .. package.path
local ffi = require("ffi")
local weft = require("weft_ffi")
local lib = weft.load(arg[2])
for line in io.lines() do
  local kind, name = line:match("^(%S+)"), line:match("(%S+)$")
  local n
  if kind == "size" then
    n = ffi.sizeof(name)
  elseif kind == "offset" then
    local struct, field = name:match("^(.*)%.(.*)$")
    n = ffi.offsetof(struct, field)
  else
    n = weft[name] ~= nil and weft[name] or lib[name]
    n = tostring(ffi.cast("int64_t", n)):gsub("LL$", "")
  end
  print(line .. " " .. n)
end
