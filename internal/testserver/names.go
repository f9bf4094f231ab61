// A name server in memory.

package testserver

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"sync/atomic"

	"golang.org/x/net/dns/dnsmessage"
)

// NameServer is a Dial for a net.Resolver. It connects to a name server that gives every
// name the IPv4 addresses. asked counts the questions for them, unless it is nil.
func NameServer(asked *atomic.Int32, ips ...string) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			for resolve(server, asked, ips) == nil {
			}
		}()
		return client, nil
	}
}

// resolve answers a question that comes over TCP (RFC 1035, section 4.2.2).
func resolve(conn net.Conn, asked *atomic.Int32, ips []string) error {
	var size uint16
	if err := binary.Read(conn, binary.BigEndian, &size); err != nil {
		return err
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(conn, text); err != nil {
		return err
	}
	var m dnsmessage.Message
	if err := m.Unpack(text); err != nil {
		return err
	}
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
		if asked != nil {
			asked.Add(1)
		}
		for _, ip := range ips {
			m.Answers = append(m.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 60},
				Body:   &dnsmessage.AResource{A: netip.MustParseAddr(ip).As4()},
			})
		}
	}
	text, err := m.Pack()
	if err != nil {
		return err
	}
	_, err = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(text))), text...))
	return err
}
