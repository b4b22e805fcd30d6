module github.com/agentjobs/jobs/examples/bench

go 1.26.0

require (
	github.com/agentjobs/jobs v0.0.0
	github.com/armon/circbuf v0.0.0-20190214190532-5111143e8da2
	github.com/go-cmd/cmd v1.4.4
	github.com/smallnest/ringbuffer v0.2.1
	golang.org/x/sys v0.50.0
)

require (
	github.com/stretchr/testify v1.12.1
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)

replace github.com/agentjobs/jobs => ../..
