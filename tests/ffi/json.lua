-- Reads JSON: objects and lists become tables (lists with n), null becomes json.null.
local json = {null = setmetatable({}, {__tostring = function() return "null" end})}

local function text(s, at)
  local out = {}
  while true do
    local from, to = s:find('^[^"\\]+', at)
    if from then
      out[#out + 1] = s:sub(from, to)
      at = to + 1
    end
    local c = s:sub(at, at)
    if c == '"' then return table.concat(out), at + 1 end
    local escaped = s:sub(at + 1, at + 1)
    local plain = {n = "\n", t = "\t", r = "\r", b = "\b", f = "\f"}
    assert(escaped ~= "u", "this reader knows no \\u")
    out[#out + 1] = plain[escaped] or escaped
    at = at + 2
  end
end

local value

local function skip(s, at) return s:find("%S", at) end

local function list(s, at)
  local out = {n = 0}
  at = skip(s, at)
  if s:sub(at, at) == "]" then return out, at + 1 end
  while true do
    out.n = out.n + 1
    out[out.n], at = value(s, at)
    at = skip(s, at)
    if s:sub(at, at) == "]" then return out, at + 1 end
    at = skip(s, at + 1)
  end
end

local function object(s, at)
  local out = {}
  at = skip(s, at)
  if s:sub(at, at) == "}" then return out, at + 1 end
  while true do
    local key
    key, at = text(s, at + 1)
    at = skip(s, skip(s, at) + 1)
    out[key], at = value(s, at)
    at = skip(s, at)
    if s:sub(at, at) == "}" then return out, at + 1 end
    at = skip(s, at + 1)
  end
end

local words = {["true"] = true, ["false"] = false, null = json.null}

function value(s, at)
  at = skip(s, at)
  local c = s:sub(at, at)
  if c == "{" then return object(s, at + 1) end
  if c == "[" then return list(s, at + 1) end
  if c == '"' then return text(s, at + 1) end
  local word = s:match("^%a+", at)
  if word then return words[word], at + #word end
  local number = s:match("^[-+%d.eE]+", at)
  return tonumber(number), at + #number
end

function json.decode(s) return (value(s, 1)) end

return json
