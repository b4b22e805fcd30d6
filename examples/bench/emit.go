package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// lineSize is the length of a line of a flood, its newline included.
const lineSize = 128

// block is what a flood repeats: 64 KiB of lines that all differ.
var block = makeBlock()

func makeBlock() []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < 64<<10; i++ {
		fmt.Fprintf(&b, "%08d %s\n", i, strings.Repeat("abcdefghij", 12)[:lineSize-10])
	}
	return b.Bytes()
}

// emit writes a flood of n bytes.
func emit(w io.Writer, n int64) error {
	for n > 0 {
		k, err := w.Write(block[:min(n, int64(len(block)))])
		if err != nil {
			return err
		}
		n -= int64(k)
	}
	return nil
}

// endOfFlood returns the last bytes of a flood of n bytes.
func endOfFlood(n int64, size int) []byte {
	size = int(min(int64(size), n))
	p := make([]byte, size)
	for i := range p {
		p[i] = block[(n-int64(size)+int64(i))%int64(len(block))]
	}
	return p
}

// smallWriter is a shell script that prints n lines of 80 bytes, each by a
// write of its own.
func smallWriter(n int) []string {
	script := `l=$1 i=0; while [ $i -lt $2 ]; do echo "$l"; i=$((i+1)); done`
	return []string{"/bin/sh", "-c", script, "sh", smallLine, fmt.Sprint(n)}
}

var smallLine = strings.Repeat("small line ", 8)[:79]
