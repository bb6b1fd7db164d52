// Checks dashboards with the types of Grafana's own SDK, which are generated from the schemas of Grafana and of its panels. Each
// unknown field and each missing field is a fault.
//
//	go run . FILE...
package main

import (
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	// The types of the options of each panel, and of the queries of each data source.
	plugins.RegisterDefaultPlugins()
	faults := false
	for _, path := range os.Args[1:] {
		if err := check(path); err != nil {
			fmt.Printf("%s:\n%s\n", path, err)
			faults = true
		}
	}
	if faults {
		os.Exit(1)
	}
}

func check(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var read dashboard.Dashboard
	if err := known(read.UnmarshalJSONStrict(text)); err != nil {
		return err
	}
	return known(read.Validate())
}

// The SDK also returns an error without faults, which has no text.
func known(err error) error {
	if err == nil || err.Error() == "" {
		return nil
	}
	return err
}
