--- functions

--- look

--- tell

--- charge

--- refund
