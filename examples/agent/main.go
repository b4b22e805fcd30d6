// Agent is a whole agent with background jobs and no framework: net/http and an
// endpoint that speaks chat completions. Without one it plays with a fake model.
//
//	go run .
//	OPENAI_API_KEY=... AGENT_MODEL=... go run . "Run the tests and tell me what fails."
//	AGENT_BASE_URL=http://localhost:11434/v1 AGENT_MODEL=qwen3 go run .
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/agentjobs/jobs/examples/internal/fakemodel"
	"github.com/agentjobs/jobs/examples/internal/host"
)

const prompt = "Start two commands as jobs at once: one that counts to 20, a number a second, and one that fails after 5 seconds. " +
	"Meanwhile tell me how many files are in this directory. Then report how both ended."

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log.SetFlags(0)

	c, err := endpoint(os.Getenv)
	if err != nil {
		log.Fatal(err)
	}
	prompt := prompt
	if c.baseURL == "" {
		fmt.Println("No endpoint in the environment: a fake model plays its part.")
		prompt = fakemodel.Prompt
		server := fakemodel.Demo().OpenAI()
		defer server.Close()
		c.baseURL = server.URL
	}
	if err := run(ctx, c, cmp.Or(strings.Join(os.Args[1:], " "), prompt), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// endpoint reads from the environment which model to ask. Its baseURL is empty
// if none is named.
func endpoint(getenv func(string) string) (client, error) {
	c := client{
		baseURL: cmp.Or(getenv("AGENT_BASE_URL"), getenv("OPENAI_BASE_URL")),
		key:     getenv("OPENAI_API_KEY"),
		model:   getenv("AGENT_MODEL"),
	}
	if c.model == "" {
		if c.baseURL != "" {
			return client{}, fmt.Errorf("AGENT_MODEL must name a model of %s", c.baseURL)
		}
		return client{}, nil
	}
	c.baseURL = cmp.Or(c.baseURL, "https://api.openai.com/v1")
	return c, nil
}

// run holds one conversation. Whatever ends it ends its jobs too.
func run(ctx context.Context, c client, prompt string, out io.Writer) error {
	s, err := host.New()
	if err != nil {
		return err
	}
	defer s.Close(context.WithoutCancel(ctx))
	_, err = converse(ctx, s, c, prompt, out)
	return err
}
