module driver

go 1.19

require millrace v0.0.0

replace millrace => ../../../clients/go
