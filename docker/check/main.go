// Reads a compose file as Docker Compose itself does, and says what is wrong with it. See `make check-compose`.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: check COMPOSE_FILE ENV_FILE")
		os.Exit(2)
	}
	options, err := cli.NewProjectOptions(
		[]string{os.Args[1]},
		cli.WithEnvFiles(os.Args[2]),
		cli.WithDotEnv,
		cli.WithProfiles([]string{"*"}),
		cli.WithName("streambank"),
	)
	if err == nil {
		_, err = options.LoadProject(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
