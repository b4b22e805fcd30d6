package main

import (
	"context"
	"testing"
	"time"
)

func TestEveryEndOfAShortSoakIsAsItMustBe(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := soak(ctx, 1, 4); err != nil {
		t.Fatal(err)
	}
}
