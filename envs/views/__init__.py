"""Texts for imported games, to be named in a configuration: `env: {render: module:function, parse: module:function}`."""
