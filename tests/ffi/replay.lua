-- Replays vectors.json through the generated declarations for LuaJIT. usage: luajit replay.lua DECLARATIONS LIBRARY VECTORS FOLDER
-- (vectors.py says what the forms mean). Prints `ok NAME`, `failed NAME: reason` or `foreign NAME` (a callback that may come from a
-- thread of the library's, which LuaJIT cannot take) for each vector.
local declarations, library, path, folder = unpack(arg)
local here = arg[0]:match("^(.*)/") or "."
package.path = declarations .. "/?.lua;" .. here .. "/?.lua;" .. package.path
local ffi, json = require("ffi"), require("json")
local weft = require("weft_ffi")
local lib = weft.load(library)
local elements = {f32 = "float", f64 = "double", i32 = "int32_t", i64 = "int64_t", u8 = "uint8_t"}

local function constant(name)
  if weft[name] ~= nil then return weft[name] end
  return lib[name]
end

-- A decimal number of 64 bits, exactly.
local function u64(digits)
  local out = 0ULL
  for digit in digits:gmatch("%d") do out = out * 10 + tonumber(digit) end
  return out
end

local function number(x)
  if type(x) == "string" then return constant(x) end
  return type(x) == "table" and u64(x.u64) or x
end

local function failed(...) error({failed = table.concat({...}, " ")}) end

local function must(what, wanted, got)
  if wanted ~= got then failed(what, "is", tostring(got) .. ", not", tostring(wanted)) end
end

local Vector = {}
Vector.__index = Vector

function Vector:kept(x)
  self.keep[#self.keep + 1] = x
  return x
end

-- The register's value: element 0 of what an out parameter pointed to.
function Vector:register(name)
  local array, at = name:match("^(.*)%[(%d+)%]$")
  if array then return self.registers[array][tonumber(at)] end
  return self.registers[name][0]
end

function Vector:callback(a)
  local counter = self.counters[a.callback]
  if not counter then
    counter = {calls = 0, user_data = 0}
    self.counters[a.callback] = counter
  end
  local called = ffi.cast(a.type, function(user_data)
    counter.calls = counter.calls + 1
    counter.user_data = counter.user_data + tonumber(ffi.cast("uintptr_t", user_data))
  end)
  self.callbacks[#self.callbacks + 1] = called
  return called
end

function Vector:fill(struct, fields)
  for name, value in pairs(fields) do
    if name == "present" and type(value) == "table" and value.n then
      local bits = 0ULL
      for i = 1, value.n do bits = bits + weft[value[i]] end
      struct[name] = bits
    else
      struct[name] = self:argument(value)
    end
  end
end

function Vector:struct(a)
  local made = self:kept(ffi.new(a.struct .. "[1]"))
  local found, init = pcall(function() return lib[a.struct .. "_init"] end)
  if found then init(made, ffi.sizeof(a.struct)) end
  if a.out then self.registers[a.out] = made end
  self:fill(made[0], a.fields)
  return made
end

local forms = {
  {"struct", function(v, a) return v:struct(a) end},
  {"structs", function(v, a)
    local made = v:kept(ffi.new(a.structs .. "[?]", a.items.n))
    for i = 1, a.items.n do v:fill(made[i - 1], a.items[i]) end
    return made
  end},
  {"text", function(v, a)
    local text = a.text:gsub("{tmp}", folder)
    return v:kept(ffi.new("char[?]", #text + 1, text))
  end},
  {"handles", function(v, a)
    local made = v:kept(ffi.new(a.type .. "*[?]", a.handles.n))
    for i = 1, a.handles.n do made[i - 1] = v:argument(a.handles[i]) end
    return made
  end},
  {"out", function(v, a)
    v.registers[a.out] = ffi.new(a.type .. "[1]")
    return v.registers[a.out]
  end},
  {"outs", function(v, a)
    v.registers[a.outs] = ffi.new(a.type .. "[?]", a.count)
    return v.registers[a.outs]
  end},
  {"callback", function(v, a) return v:callback(a) end},
  {"address", function(_, a) return ffi.cast((a.type or "void") .. "*", a.address) end},
  {"u64", function(_, a) return u64(a.u64) end},
}

function Vector:argument(a)
  if a == json.null then return nil end
  if type(a) == "string" then
    if a:sub(1, 1) == "$" then return self:register(a:sub(2)) end
    return constant(a)
  end
  if type(a) ~= "table" then return a end
  for _, form in ipairs(forms) do
    if a[form[1]] ~= nil then return form[2](self, a) end
  end
  local kind, values = next(a)
  local made = self:kept(ffi.new(elements[kind] .. "[?]", math.max(values.n, 1)))
  for i = 1, values.n do made[i - 1] = values[i] end
  return made
end

function Vector:error(wanted, given)
  if given == nil then
    if wanted then failed("there is no error, but wanted is", wanted.message) end
    return
  end
  local ok, raised = pcall(weft.check, given)
  assert(not ok)
  local message = raised.message:gsub(folder:gsub("%p", "%%%0"), "{tmp}")
  if not wanted then failed("error", raised.code, message) end
  must("error", wanted.message, message)
  must("code", tonumber(ffi.cast("int", constant(wanted.code))), raised.code)
end

function Vector:returned(wanted, given)
  if wanted == nil or wanted == json.null then
    if given ~= nil then failed("something is returned") end
  elseif type(wanted) == "table" and wanted.reg then
    local kept = {}
    kept[0] = given
    self.registers[wanted.reg] = kept
  elseif type(wanted) == "table" and wanted.not_null then
    if given == nil then failed("NULL is returned") end
  elseif type(wanted) == "table" then
    must("what is returned", wanted.text, ffi.string(given))
  else
    must("what is returned", tonumber(number(wanted)), tonumber(given))
  end
end

function Vector:blob(name)
  local held = self:register(name)
  return ffi.string(lib.weft_blob_data(held), lib.weft_blob_size(held))
end

function Vector:elements(name, dtype)
  local held, size = self:register(name), ffi.new("uint64_t[1]")
  weft.check(lib.weft_tensor_size(held, size))
  local bytes = tonumber(size[0])
  local data = ffi.new(elements[dtype] .. "[?]", math.max(bytes / ffi.sizeof(elements[dtype]), 1))
  weft.check(lib.weft_tensor_to_host(held, data, bytes))
  return data
end

local function same_list(what, wanted, got)
  for i = 1, wanted.n do must(what .. "[" .. (i - 1) .. "]", wanted[i], tonumber(got[i - 1])) end
end

function Vector:expect(e)
  if e.counter then
    local counter = self.counters[e.counter] or {calls = 0, user_data = 0}
    must("calls of " .. e.counter, e.calls, counter.calls)
    must("user_data of " .. e.counter, e.user_data, counter.user_data)
  elseif e.blob then
    local text = self:blob(e.blob)
    if e.has then return must("the blob has " .. e.has, true, text:find(e.has, 1, true) ~= nil) end
    must("the blob", e.is, text)
  elseif e.tensor then
    same_list("tensor " .. e.tensor, e.is, self:elements(e.tensor, e.dtype))
  elseif e.length then
    local holder = e.field and self.registers[e.reg][0]
    local data = holder and holder[e.field] or self:register(e.reg)
    must(e.reg, e.is, ffi.string(data, tonumber(holder and holder[e.length] or self:register(e.length))))
  elseif type(e.is) == "table" and e.is.n then
    same_list(e.reg, e.is, self.registers[e.reg])
  else
    local got = self.registers[e.reg][0]
    if e.field then got = got[e.field] end
    if e.is == 0 and got == nil then return end
    if not (got == number(e.is)) then failed(e.reg, "is", tostring(got) .. ", not", tostring(e.is)) end
  end
end

function Vector:run(calls)
  for i = 1, calls.n do
    local call, arguments = calls[i], {}
    for at = 1, call.args.n do arguments[at] = self:argument(call.args[at]) end
    local ok, result = pcall(function()
      local given = lib[call.call](unpack(arguments, 1, call.args.n))
      if call.returns == nil and type(given) == "cdata" and ffi.istype("weft_error*", given) then
        self:error(call.error, given)
      else
        self:returned(call.returns, given)
      end
      for at = 1, call.expect and call.expect.n or 0 do self:expect(call.expect[at]) end
    end)
    if not ok then error({failed = call.call .. ": " .. (type(result) == "table" and result.failed or tostring(result))}) end
  end
end

local file = assert(io.open(path))
local vectors = json.decode(file:read("*a")).vectors
for i = 1, vectors.n do
  local entry = vectors[i]
  if entry.any_thread then
    print("foreign " .. entry.name)
  else
    local vector = setmetatable({registers = {}, counters = {}, keep = {}, callbacks = {}}, Vector)
    local ok, reason = pcall(vector.run, vector, entry.calls)
    for _, callback in ipairs(vector.callbacks) do callback:free() end
    print(ok and "ok " .. entry.name or "failed " .. entry.name .. ": " .. (type(reason) == "table" and reason.failed or tostring(reason)))
  end
end
