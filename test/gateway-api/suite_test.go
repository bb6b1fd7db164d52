// Package gatewayapi runs the conformance suite of Gateway API. run.py builds the program and starts it in a cluster.
package gatewayapi

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/gateway-api/conformance"
	"sigs.k8s.io/gateway-api/conformance/tests"
	"sigs.k8s.io/gateway-api/conformance/utils/config"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/gateway-api/pkg/features"
)

// The suite has flags of its own: --gateway-class, --conformance-profiles, --report-output and more.
var (
	featuresFile = flag.String("features", "features", "The file with the supported features")
	channel      = flag.String("channel", features.FeatureChannelStandard, "The channel of the CRDs: without experimental, experimental features are not supported")
	release      = flag.String("release", "1.6", "The release of Gateway API")
	only         = flag.String("only", "", "Comma-separated patterns of tests: run only these tests, even if their features are not supported")
	patience     = flag.Duration("patience", 0, "The longest timeout of the suite; 0 for the timeouts of the suite")
	catalog      = flag.String("catalog", "", "The file for the lists of the tests and of the supported features, as JSON")
)

// The profiles of gateways. Sluicegate is no service mesh.
var profiles = []suite.ConformanceProfile{
	suite.GatewayHTTPConformanceProfile,
	suite.GatewayGRPCConformanceProfile,
	suite.GatewayTLSConformanceProfile,
	suite.GatewayTCPConformanceProfile,
	suite.GatewayUDPConformanceProfile,
}

// Experimental features that need no experimental field. They count with the standard channel too: the suite checks that a
// gateway without such a feature rejects its use.
var withoutFields = []features.FeatureName{features.SupportTLSRouteModeMixed, features.SupportHTTPRouteDestinationPortMatching}

// test is an entry of the catalog.
type test struct {
	Name        string `json:"name"`
	Provisional bool   `json:"provisional"`
	// Profiles maps the name of each profile of the test to `core` or `extended`.
	Profiles map[string]string `json:"profiles"`
	// Unsupported lists the features of the test that Sluicegate does not support.
	Unsupported []features.FeatureName `json:"unsupported"`
}

// contents of the catalog.
type contents struct {
	Tests []test `json:"tests"`
	// Features maps each feature of the channel to whether Sluicegate supports it.
	Features map[features.FeatureName]bool `json:"features"`
}

func TestConformance(t *testing.T) {
	options := conformance.DefaultOptions(t)
	listed, err := readFeatures(*featuresFile, *channel, *release)
	require.NoError(t, err)
	supported := suite.FeaturesSet{}
	for name, is := range listed {
		if is {
			supported.Insert(name)
		}
	}
	// Profiles enable their core features by themselves, so the suite reports a core feature as supported in any case.
	for _, profile := range profiles {
		if slices.Contains(options.ConformanceProfiles, profile.Name) {
			supported = supported.Union(profile.CoreFeatures)
		}
	}
	tests.ConformanceTests = slices.DeleteFunc(tests.ConformanceTests, func(each suite.ConformanceTest) bool {
		return slices.Contains(each.Features, features.SupportMesh)
	})
	if *only != "" {
		tests.ConformanceTests, err = selected(tests.ConformanceTests, strings.Split(*only, ","))
		require.NoError(t, err)
		for _, each := range tests.ConformanceTests {
			supported.Insert(each.Features...)
		}
	}
	if *catalog != "" {
		entries := entriesOf(tests.ConformanceTests, options.ConformanceProfiles, supported)
		content, err := json.Marshal(contents{entries, listed})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(*catalog, content, 0o644))
	}
	options.SupportedFeatures = sets.List(supported)
	limit(&options.TimeoutConfig, *patience)
	conformance.RunConformanceWithOptions(t, options)
}

// readFeatures reads the file of features: `+ NAME` is supported, `- NAME REASON` is not. `@1.7` behind the name limits the
// line to that release. The file must name each feature of gateways, so that a new version of the suite cannot add features
// unnoticed. The result has the features of the channel, and whether they are supported.
func readFeatures(file, channel, release string) (map[features.FeatureName]bool, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	known := suite.FeaturesSet{}
	for _, profile := range profiles {
		known = known.Union(profile.CoreFeatures).Union(profile.ExtendedFeatures)
	}
	known = known.Union(features.SetsToNamesSet(features.GRPCRouteExtendedFeatures))
	named, listed := suite.FeaturesSet{}, map[features.FeatureName]bool{}
	lines := bufio.NewScanner(strings.NewReader(string(content)))
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "+" && words[0] != "-" {
			return nil, fmt.Errorf("%s:%d: neither `+ FEATURE` nor `- FEATURE REASON`: %s", file, number, line)
		}
		if len(words) > 2 && strings.HasPrefix(words[2], "@") {
			if words[2] != "@"+release {
				continue
			}
			words = slices.Delete(words, 2, 3)
		}
		name := features.FeatureName(words[1])
		switch {
		case !known.Has(name):
			return nil, fmt.Errorf("%s:%d: %s is no feature of gateways", file, number, name)
		case named.Has(name):
			return nil, fmt.Errorf("%s:%d: %s has a line already", file, number, name)
		case words[0] == "-" && len(words) == 2:
			return nil, fmt.Errorf("%s:%d: %s has no reason", file, number, name)
		}
		named.Insert(name)
		isStandard := features.GetFeature(name).Channel == features.FeatureChannelStandard || slices.Contains(withoutFields, name)
		if isStandard || channel == features.FeatureChannelExperimental {
			listed[name] = words[0] == "+"
		}
	}
	if missing := known.Difference(named); len(missing) > 0 {
		return nil, fmt.Errorf("%s: no line for %v", file, sets.List(missing))
	}
	return listed, nil
}

// selected returns the tests that match the patterns of path.Match. Each pattern must match a test.
func selected(all []suite.ConformanceTest, patterns []string) ([]suite.ConformanceTest, error) {
	var found []suite.ConformanceTest
	matched := sets.Set[string]{}
	for _, each := range all {
		taken := false
		for _, pattern := range patterns {
			matches, err := path.Match(pattern, each.ShortName)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", pattern, err)
			}
			if matches {
				matched.Insert(pattern)
				taken = true
			}
		}
		if taken {
			found = append(found, each)
		}
	}
	if missing := sets.New(patterns...).Difference(matched); len(missing) > 0 {
		return nil, fmt.Errorf("the suite has no test %s", strings.Join(sets.List(missing), ", "))
	}
	return found, nil
}

// entriesOf returns the tests with their levels in the chosen profiles.
func entriesOf(all []suite.ConformanceTest, chosen []suite.ConformanceProfileName, supported suite.FeaturesSet) []test {
	entries := make([]test, 0, len(all))
	for _, each := range all {
		needed := sets.New(each.Features...)
		entry := test{
			Name: each.ShortName, Provisional: each.Provisional, Profiles: map[string]string{},
			Unsupported: sets.List(needed.Difference(supported)),
		}
		for _, profile := range profiles {
			switch {
			case !slices.Contains(chosen, profile.Name) || !profile.CoreFeatures.Union(profile.ExtendedFeatures).IsSuperset(needed):
			case profile.CoreFeatures.IsSuperset(needed):
				entry.Profiles[string(profile.Name)] = "core"
			default:
				entry.Profiles[string(profile.Name)] = "extended"
			}
		}
		entries = append(entries, entry)
	}
	return entries
}

// limit lowers all timeouts to the longest timeout. 0 changes nothing.
func limit(timeouts *config.TimeoutConfig, longest time.Duration) {
	fields := reflect.ValueOf(timeouts).Elem()
	for number := range fields.NumField() {
		timeout, ok := fields.Field(number).Addr().Interface().(*time.Duration)
		if ok && longest > 0 && *timeout > longest {
			*timeout = longest
		}
	}
}
