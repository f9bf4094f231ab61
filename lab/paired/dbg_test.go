package paired

import (
	"fmt"
	"os"
	"strconv"
	"testing"
)

func TestDbg(t *testing.T) {
	s, _ := strconv.Atoi(os.Getenv("S"))
	p := newPlan(uint64(s))
	fmt.Println(p)
	r := play(t, p, bare(0), nil, 0, 0)
	fmt.Println("bare", r.requests)
	for _, k := range p.kinds() {
		r := play(t, p, k, nil, 0, 0)
		fmt.Println(k.name, r.requests, len(r.ghosts()))
		for _, g := range r.ghosts()[:min(10, len(r.ghosts()))] {
			fmt.Println(*&g.at, g.leaves, g.n)
		}
		play(t, p, bare(k.rule.AttemptTimeout), r.ghosts(), 0, 0)
		fmt.Println("ghosts ok")
	}
}
