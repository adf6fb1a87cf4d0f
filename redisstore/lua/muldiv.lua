-- muldiv returns floor((a*b + c) / d) and the remainder, or INFINITE and 0 if
-- that is more. a, c and d are below 2^45 (a: 2^53), b below 2^35, d positive.
-- The product is taken in limbs of 7 bits, so that every number is below 2^53.
local INFINITE = 4503599627370496
local function muldiv(a, b, c, d)
	local q, r = 0, a * b
	if r < INFINITE then
		r = r + c
		q = (r - r % d) / d
		return q, r % d
	end
	local rest = a % d
	r = 0
	for limb = 4, 0, -1 do
		local digit = math.floor(b / 128 ^ limb) % 128
		local sum = r * 128 + rest * digit
		r = sum % d
		q = q * 128 + (sum - r) / d
	end
	r = r + c
	q = q + (a - rest) / d * b + (r - r % d) / d
	if q >= INFINITE then return INFINITE, 0 end
	return q, r % d
end
