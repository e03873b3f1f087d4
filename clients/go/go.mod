module millrace

go 1.19
