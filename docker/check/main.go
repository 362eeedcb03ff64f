// Reads a compose file as Docker Compose itself does, and says what is wrong with it: `make check-compose`.
//
//	go run . COMPOSE_FILE ENV_FILE
//
// A variable that is neither set in the env file nor has a default is a mistake here; Compose only warns.
package main

import (
	"context"
	"fmt"
	"os"
	"sort"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/sirupsen/logrus"
)

// warnings keeps what the parser would only have said.
type warnings struct{ said []string }

func (w *warnings) Levels() []logrus.Level { return []logrus.Level{logrus.WarnLevel} }

func (w *warnings) Fire(entry *logrus.Entry) error {
	w.said = append(w.said, entry.Message)
	return nil
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: go run . COMPOSE_FILE ENV_FILE")
		os.Exit(2)
	}
	found := &warnings{}
	logrus.AddHook(found)
	options, err := cli.NewProjectOptions(
		[]string{os.Args[1]},
		cli.WithEnvFiles(os.Args[2]),
		cli.WithDotEnv,
	)
	if err != nil {
		fail(err)
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		fail(err)
	}
	if len(found.said) > 0 {
		fail(fmt.Errorf("%d warnings of the parser", len(found.said)))
	}
	names := project.ServiceNames()
	sort.Strings(names)
	fmt.Printf("%s: %d services: %v\n", os.Args[1], len(names), names)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
