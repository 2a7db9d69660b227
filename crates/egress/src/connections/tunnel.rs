//! A connection of which the bytes are carried as they are. Owns what is looked at before the first of them leaves: TLS must
//! name the host that was asked for, plain HTTP goes to `http`, and a host with rules about requests takes nothing else.
//! Called by `intercepted`, and by `proxy` for tunnels.

use std::cell::Cell;

use cofferdam_policy::Host;
use rustix::net::Shutdown;
use tokio::net::TcpStream;

use crate::connections::context::Context;
use crate::connections::first_bytes::{Kind, begins_tls, kind_of, look, read_more};
use crate::connections::flow::{Dialled, Flow, carry};
use crate::connections::http;
use crate::connections::splice::{Way, write_all};

/// On which nothing but TLS is carried.
const TLS_PORT: u16 = 443;

/// Carries a connection that was allowed, once what it begins with (`read` is what came already) fits the name.
pub(crate) async fn serve<'a>(flow: Flow<'a>, client: TcpStream, mut read: Vec<u8>, dialled: Dialled<'a>) {
    let Flow { context, host, port, .. } = flow;
    let reads = context.reads(host, port);
    if port != TLS_PORT && !reads {
        return serve_anything(flow, client, read, dialled).await;
    }
    let looked = tokio::time::timeout(context.header_timeout, look(&client, &mut read, host)).await;
    let refused = match looked {
        Ok(Ok(Kind::Tls)) if !reads => None,
        Ok(Ok(Kind::Tls)) => match &context.terminator {
            Some(terminator) => {
                return Box::pin(http::serve_terminated(flow, terminator, client, read, dialled)).await;
            }
            None => Some("its rules are about requests, which TLS hides"),
        },
        Ok(Ok(_)) if port == TLS_PORT => Some("only TLS is carried to port 443"),
        Ok(Ok(Kind::Http)) => return Box::pin(http::serve_origin(flow, client, read, dialled)).await,
        Ok(Ok(_)) => Some("its requests are read, and this is neither HTTP nor TLS"),
        Ok(Err(why)) => Some(why),
        Err(_) => Some("nothing that names the host came in time"),
    };
    if let Some(why) = refused {
        return flow.refuse(&client, why).await;
    }
    let Some((server, recorded)) = flow.connected(dialled, &client).await else { return };
    carry(context, (&client, read), &server, &recorded, flow.place).await;
}

/// A server may speak first, so it is connected before anything was said.
async fn serve_anything<'a>(flow: Flow<'a>, client: TcpStream, mut read: Vec<u8>, dialled: Dialled<'a>) {
    let Flow { context, host, place, .. } = flow;
    let Some((server, recorded)) = flow.connected(dialled, &client).await else { return };
    let looked = tokio::select! {
        biased;
        looked = look(&client, &mut read, host) => looked,
        _ = server.readable() => Ok(Kind::Unclear),
    };
    match looked {
        Ok(Kind::Http) => Box::pin(http::serve_origin(flow, client, read, Some((server, recorded)))).await,
        Ok(Kind::Unclear) => {
            let (traffic, is_last) = (&place.traffic, &Cell::new(false));
            let back = Way { from: &server, to: &client, carried: &recorded.down, traffic, is_last };
            let there = Way { from: &client, to: &server, carried: &recorded.up, traffic, is_last };
            let sent = async {
                let sent = send_watched(context, read, host, &there).await;
                place.traffic.settle(true);
                if let Err(why) = sent {
                    flow.refuse(&client, why).await;
                    shut(&server);
                    shut(&client);
                }
            };
            // How it ended is the programs' business.
            let ((), _received) = tokio::join!(sent, context.carrier.one(&back));
        }
        Ok(Kind::Tls | Kind::Other) => carry(context, (&client, read), &server, &recorded, place).await,
        Err(why) => flow.refuse(&client, why).await,
    }
}

/// Where the server spoke first, or the program says too little to know what it speaks: what it says goes on, and is looked
/// at for as long as it could still turn out to be something that names a host.
async fn send_watched(context: &Context, first: Vec<u8>, host: &Host, way: &Way<'_>) -> Result<(), &'static str> {
    const FAILED: &str = "the connection failed";
    let mut seen = first;
    let mut sent = 0;
    loop {
        let kind = kind_of(&seen, host)?;
        if kind == Some(Kind::Http) {
            return Err("a request that begins in pieces, or to a server that spoke first");
        }
        // A greeting of TLS goes on once it is known whom it names.
        if kind.is_some() || !begins_tls(&seen) {
            way.count(seen.len() - sent).map_err(|_| FAILED)?;
            write_all(way.to, &seen[sent..]).await.map_err(|_| FAILED)?;
            sent = seen.len();
        }
        if kind.is_some() {
            break;
        }
        if read_more(way.from, &mut seen).await.map_err(|_| FAILED)? == 0 {
            break;
        }
    }
    drop(seen);
    // How it ended is the programs' business.
    drop(context.carrier.one(way).await);
    Ok(())
}

fn shut(stream: &TcpStream) {
    // It may be shut already, which is what is wanted.
    let _shut = rustix::net::shutdown(stream, Shutdown::Both);
}
