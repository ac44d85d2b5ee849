"""What HAProxy is taught in Lua: what a conversation is known by, and which instance is its home.

A conversation is known by its `user` field, else by its first user message. Reading it walks the JSON text (RFC 8259)
without building values: strings are skipped by C code, and a budget of steps bounds what a hostile body can cost; a
body that exceeds it is balanced without a key. Message text is taken as it is spelled in the body, from a string or
from the text parts of a list alike.

Its home is chosen by rendezvous hashing (Thaler and Ravishankar 1998) with bounded load (Mirrokni, Thorup and
Zadimoghaddam 2018): the instance that ranks highest for the key and has fewer requests than `factor` times its share,
but never one that has fewer than `floor`. HAProxy's hash-balance-factor knows no floor: with few requests under way it
would send the second of two conversations of one home elsewhere, away from its cached prefix.
"""

import json

from .council_answers import ERRORS, error_body
from .council_config import Council

BUDGET = 300_000
KEY_BYTES = 1024
DRAIN_TIMES = 16

SCRIPT = """\
-- Written by `soloist council render`.
local FACTOR, FLOOR = @FACTOR@, @FLOOR@
local BUDGET, KEY_BYTES = @BUDGET@, @KEY_BYTES@
local DRAIN, TOO_LARGE = @DRAIN@, @TOO_LARGE@
local QUOTE, BACKSLASH, OPEN_OBJECT, OPEN_LIST = 34, 92, 123, 91
local byte, find, match, sub = string.byte, string.find, string.match, string.sub
local left

local function spend()
    left = left - 1
    if left < 0 then error("too many steps", 0) end
end

-- Index of the quote that ends the string whose text begins at `at`.
local function string_end(text, at)
    while true do
        spend()
        local hit = find(text, '["\\\\]', at)
        if not hit or byte(text, hit) == QUOTE then return hit end
        at = hit + 2
    end
end

-- Index of the last character of the value that begins at `at`.
local function value_end(text, at)
    local first = byte(text, at)
    if first == QUOTE then return string_end(text, at + 1) end
    if first ~= OPEN_OBJECT and first ~= OPEN_LIST then
        local stop = find(text, "[,%]}%s]", at)
        return stop and stop - 1
    end
    local depth = 0
    while true do
        spend()
        local hit = find(text, '["%[%]{}]', at)
        if not hit then return nil end
        local found = byte(text, hit)
        if found == QUOTE then
            hit = string_end(text, hit + 1)
            if not hit then return nil end
        elseif found == OPEN_OBJECT or found == OPEN_LIST then
            depth = depth + 1
        else
            depth = depth - 1
            if depth == 0 then return hit end
        end
        at = hit + 1
    end
end

-- visit(key, first, last) for each member of the object at `at`, until it returns true.
local function each_member(text, at, visit)
    if byte(text, at) ~= OPEN_OBJECT then return end
    at = at + 1
    while true do
        local open = find(text, "[^%s,]", at)
        if not open or byte(text, open) ~= QUOTE then return end
        local close = string_end(text, open + 1)
        local first = close and match(text, "^%s*:%s*()", close + 1)
        local last = first and value_end(text, first)
        if not last or visit(sub(text, open + 1, close - 1), first, last) then return end
        at = last + 1
    end
end

-- visit(first, last) for each item of the list at `at`, until it returns true.
local function each_item(text, at, visit)
    if byte(text, at) ~= OPEN_LIST then return end
    at = at + 1
    while true do
        local first = find(text, "[^%s,]", at)
        if not first or sub(text, first, first) == "]" then return end
        local last = value_end(text, first)
        if not last or visit(first, last) then return end
        at = last + 1
    end
end

-- The text between the quotes, or nil where the value is no string or an empty one.
local function string_at(text, first, last)
    if byte(text, first) == QUOTE and last > first + 1 then return sub(text, first + 1, last - 1) end
end

-- The text of a message's content: a string, or the text parts of a list.
local function content_text(text, first, last)
    local whole = string_at(text, first, last)
    if whole then return whole end
    local parts = {}
    each_item(text, first, function(item)
        each_member(text, item, function(key, a, b)
            if key == "text" then parts[#parts + 1] = string_at(text, a, b) end
        end)
    end)
    if #parts > 0 then return table.concat(parts) end
    if byte(text, first) == OPEN_LIST then return sub(text, first, last) end
end

local function first_user_text(text, at)
    local found
    each_item(text, at, function(item)
        local role, first, last
        each_member(text, item, function(key, a, b)
            if key == "role" then role = string_at(text, a, b) end
            if key == "content" then first, last = a, b end
        end)
        if role == "user" and first then found = content_text(text, first, last) end
        return found
    end)
    return found
end

local function examine(text)
    local model, user, messages
    each_member(text, find(text, "%S") or 1, function(key, first, last)
        if key == "model" then model = string_at(text, first, last) end
        if key == "user" then user = string_at(text, first, last) end
        if key == "messages" or key == "input" then messages = first end
    end)
    if user then return model, "user " .. user end
    local said = messages and (string_at(text, messages, value_end(text, messages)) or first_user_text(text, messages))
    return model, said and "said " .. #said .. " " .. sub(said, 1, KEY_BYTES)
end

-- Sets txn.key, and txn.model where json_query found none.
core.register_action("affinity", { "http-req" }, function(txn)
    left = BUDGET
    local fine, model, key = pcall(examine, txn.f:req_body() or "")
    if not fine then return end
    if key and not txn:get_var("txn.key") then txn:set_var("txn.key", key) end
    if model and not txn:get_var("txn.model") then txn:set_var("txn.model", model) end
end, 0)

-- Sets txn.home to the name of an instance of the backend; leaves it unset where none is ready.
core.register_action("place", { "http-req" }, function(txn, backend)
    local key, ready, total = txn:get_var("txn.key"), {}, 0
    if not key then return end
    for name, server in pairs(core.backends[backend].servers) do
        local stats = server:get_stats()
        if stats.act == 1 and sub(stats.status, 1, 2) == "UP" then
            ready[#ready + 1] = { name = name, load = stats.scur, rank = txn.c:xxh64(name .. " " .. key, 0) }
            total = total + stats.scur
        end
    end
    table.sort(ready, function(one, other) return one.rank > other.rank end)
    local bound = math.max(FLOOR, math.ceil((total + 1) * FACTOR / 100 / #ready))
    for _, server in ipairs(ready) do
        if server.load < bound then
            txn:set_var("txn.home", server.name)
            return
        end
    end
end, 1)

-- Answers 413 after reading what the client is still sending, up to a limit: else it would see a reset, not an answer.
core.register_service("too_large", "http", function(applet)
    local read = 0
    while read < DRAIN do
        local part = applet:receive(65536)
        if not part or #part == 0 then break end
        read = read + #part
    end
    applet:set_status(413)
    applet:add_header("content-type", "application/json")
    applet:add_header("content-length", tostring(#TOO_LARGE))
    applet:add_header("connection", "close")
    applet:start_response()
    applet:send(TOO_LARGE)
end)
"""


def script(council: Council) -> str:
    """The text of the Lua file."""
    values = {
        "FACTOR": council.balance_factor,
        "FLOOR": council.balance_floor,
        "BUDGET": BUDGET,
        "KEY_BYTES": KEY_BYTES,
        "DRAIN": DRAIN_TIMES * council.largest_body,
        "TOO_LARGE": json.dumps(error_body(*ERRORS[413])),
    }
    text = SCRIPT
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    return text
